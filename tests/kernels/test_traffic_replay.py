"""The replay that ncu watches: same inputs as the model's, one call in sight, one failure at a time."""

from __future__ import annotations

import json

import pytest
import torch

from kernels import Problem
from kernels.bench.contestants import make_inputs
from tests.conftest import interpreter
from vit.block import Attention
from vit.config import ViTConfig

if interpreter() is not None:
    pytest.skip(f"interpreter tests: {interpreter()}", allow_module_level=True)

from kernels.traffic import replay

pytestmark = pytest.mark.interpreter
CPU = torch.device("cpu")
SMALL = Problem(2, 3, 17, 17, 16, "float32")


def as_json(problem: Problem) -> dict:
    return json.loads(json.dumps(vars(problem)))


@pytest.fixture
def sights(monkeypatch) -> list[list[str]]:
    """What is launched where the profiler looks, by name."""
    found: list[list[str]] = []
    looking = [False]

    class Sight:
        def __enter__(self):
            found.append([])
            looking[0] = True

        def __exit__(self, *_):
            looking[0] = False

    def spied(name, work):
        def run(*args):
            if looking[0]:
                found[-1].append(name)
            return work(*args)

        return run

    class Marker:
        def __getitem__(self, grid):
            return spied("marker", lambda *_: None)

    monkeypatch.setattr(replay, "seen", lambda _: Sight())
    monkeypatch.setattr(replay, "flashlens_marker", Marker())
    for direction, maker in replay.WORKS.items():
        make = lambda *args, maker=maker, direction=direction: spied(direction, maker(*args))  # noqa: E731
        monkeypatch.setitem(replay.WORKS, direction, make)
    return found


def lines(requests: list) -> list[dict]:
    return list(replay.answers({"requests": requests}, CPU))


@pytest.fixture(autouse=True)
def small_copy(monkeypatch):
    monkeypatch.setattr(replay, "GIB", 2**18)


def test_one_call_of_each_after_a_marker(sights):
    asked = [(as_json(SMALL), "eager", direction) for direction in replay.WORKS]
    said = lines(asked)
    assert sights == [["marker"], *(["marker", direction] for direction in replay.WORKS)]
    assert [line.get("marker") for line in said] == [0, 1, 2, 3, None]
    assert said[-1] == {"done": True}


def test_a_refusal_and_a_failure_lose_no_other(sights, monkeypatch):
    failing = replay.WORKS["backward"]

    def out_of_memory(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setitem(replay.WORKS, "backward", out_of_memory)
    asked = [
        (as_json(SMALL), "eager", "backward"),
        (as_json(SMALL), "sdpa-flash", "forward"),
        (as_json(SMALL), "nobody", "forward"),
        (as_json(Problem(1, 1, 0, 4, 16)), "eager", "forward"),
        (as_json(SMALL), "eager", "forward"),
    ]
    said = lines(asked)[1:-1]
    assert [line.get("cause") for line in said] == [
        "out of memory",
        "refused",
        "failed",
        "refused",
        None,
    ]
    assert [line["request"] for line in said] == [0, 1, 2, 3, 4]
    assert said[-1]["marker"] == 1
    assert all(line["sentence"] for line in said[:-1])
    assert failing is not out_of_memory


def test_a_failure_in_sight_leaves_its_marker_behind(sights, monkeypatch):
    calls = []

    def third_time(*_):
        def work():
            calls.append(1)
            if len(calls) > replay.WARM_UPS:
                raise torch.OutOfMemoryError("CUDA out of memory")

        return work

    monkeypatch.setitem(replay.WORKS, "backward", third_time)
    asked = [(as_json(SMALL), "eager", direction) for direction in ("backward", "forward")]
    said = lines(asked)
    assert said[1]["cause"] == "out of memory"
    assert said[2]["marker"] == 2, "ncu has seen a marker of the one that failed"


def test_after_a_broken_context_nothing_more_is_tried(sights, monkeypatch):
    monkeypatch.setattr(replay, "lost", lambda _: True)
    said = lines([(as_json(SMALL), "eager", "forward")] * 2)
    assert said[1]["marker"] == 1
    assert "broke the GPU's context" in said[2]["sentence"]
    assert said[-1] == {"done": True}


def test_inputs_lie_as_in_the_model():
    """q, k and v that the replay makes have the strides of those that the model makes."""
    problem = Problem(2, 3, 17, 17, 16, "float32")
    config = ViTConfig(dim=48, heads=3, layers=1)
    _, trace = Attention(config)(torch.randn(2, 17, 48), "eager")
    plain = make_inputs(problem, CPU)
    made = replay.as_in_the_model(plain)
    for ours, theirs, values in zip(
        made.forward[:3], (trace.q, trace.k, trace.v), plain.forward[:3], strict=True
    ):
        assert ours.stride() == theirs.stride()
        assert torch.equal(ours, values)
    assert made.grad_output.transpose(1, 2).is_contiguous()
    assert torch.equal(made.grad_output, plain.grad_output)


@pytest.mark.parametrize(
    "problem", [Problem(2, 6, 9, 9, 16, kv_heads=2), Problem(1, 2, 9, 12, 16, "float32")]
)
def test_other_shapes_have_tokens_before_heads(problem):
    plain = make_inputs(problem, CPU)
    made = replay.as_in_the_model(plain)
    for ours, values in zip(made.forward[:3], plain.forward[:3], strict=True):
        assert ours.transpose(1, 2).is_contiguous()
        assert torch.equal(ours, values)


def test_the_calibration_reads_all_and_writes_all():
    copy = replay.Calibration(CPU)
    copied = copy.target.numel() - copy.lag * replay.BLOCK
    assert copied > 0
    assert copy.lag > 0
    copy.source[:copied] = torch.arange(1, copied + 1)
    copy.target.fill_(-1)
    copy.warm_up()
    assert torch.equal(copy.target[copy.lag * replay.BLOCK :], copy.source[:copied])
    assert not copy.target[: copy.lag * replay.BLOCK].any()
    assert copy.expected_bytes == copy.source.nbytes == copy.target.nbytes


def test_the_compiler_keeps_every_read_of_the_calibration():
    """What only pushes others out of L2 is read all the same: a last word that is not zero changes the target."""
    copy = replay.Calibration(CPU)
    copy()
    assert not copy.target.any()
    copy.source[-1] = 5
    copy()
    assert copy.target[0] == 1
