"""The benchmark of the whole model: what it asks, and that it measures only what is right."""

from __future__ import annotations

import pytest
import torch

from kernels.bench.record import BenchError
from vit.bench import model_speed


def row(contestant: str, side: int, time_ms: float) -> dict[str, object]:
    return {"contestant": contestant, "side": side, "time_ms": time_ms}


def test_what_issue_6_asks() -> None:
    rows = [row("ours-forward", 518, 1.4), row("ours-trace", 518, 1.5), row("ours-forward", 224, 9)]
    limit, on_top = model_speed.verdicts(rows)
    assert limit.endswith("reached")
    assert "NOT" not in limit + on_top
    rows = [row("ours-forward", 518, 1.6), row("ours-trace", 518, 1.9)]
    assert all("NOT reached" in sentence for sentence in model_speed.verdicts(rows))


def test_a_wrong_answer_is_not_timed() -> None:
    truth = torch.randn(1, 9, 8)
    pixels = torch.zeros(1, 3, 14, 14, dtype=torch.float16)
    near = truth.half()
    assert model_speed.check("near", lambda _: near, pixels, truth) < 1e-3
    for wrong in (near * 1.1, near * torch.nan):
        with pytest.raises(BenchError, match="nothing is recorded"):
            model_speed.check("wrong", lambda _, wrong=wrong: wrong, pixels, truth)


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU it would measure")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert model_speed.main(["--dry"]) == 2
    assert "no NVIDIA GPU" in capsys.readouterr().err
