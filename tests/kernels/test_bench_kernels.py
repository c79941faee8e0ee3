"""Kernel recipes: what is wrong is never timed, rows are whole and written at once, verdicts are right."""

from __future__ import annotations

import csv
import dataclasses

import pytest
import torch

from kernels.bench import __main__ as command
from kernels.bench import judge, run_kernels, timing
from kernels.bench.recipes import RECIPES, KernelRecipe, KernelTarget, square
from kernels.bench.record import BenchError
from kernels.eager import IMPLEMENTATION as EAGER
from kernels.problem import Problem
from kernels.registry import load

CPU = torch.device("cpu")
KERNEL_RECIPES = [recipe for recipe in RECIPES.values() if isinstance(recipe, KernelRecipe)]
on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="times what a CPU has")
PROBLEMS = [
    Problem(1, 2, 65, 65, 40, "float32"),
    Problem(2, 2, 33, 33, 64, "float16", causal=True),
    Problem(1, 4, 30, 70, 32, "float32", causal=True, kv_heads=2),
    Problem(1, 1, 70, 30, 32, "float32", causal=True),
]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No sample of a test lasts long."""
    monkeypatch.setattr(timing, "CPU_SAMPLE_US", 100.0)
    monkeypatch.setattr(command, "machine", lambda commit: {"machine": "t", "commit": commit or ""})


def measured(*arguments: str, out) -> list[dict[str, str]]:
    assert command.main([*arguments, "--rounds", "3", "--out", str(out)]) == 0
    return list(csv.DictReader(out.open()))


# --- recipes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", KERNEL_RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipe_is_whole(recipe):
    assert recipe.on_gpu
    assert len(set(recipe.on_gpu)) == len(recipe.on_gpu)
    assert {p.dtype for p in recipe.on_gpu} == {"bfloat16"}
    assert {p.dtype for p in recipe.on_cpu} <= {"float32"}
    for target in recipe.targets:
        assert bool(target.peer) != bool(target.limit_us)
        assert any(target.covers(problem) for problem in recipe.on_gpu)


def test_memory_reaches_a_million_tokens():
    recipe = RECIPES["memory_vs_tokens"]
    assert [p.queries for p in recipe.on_gpu][-1] == 1_048_576


# --- running ----------------------------------------------------------------------------------------


@on_cpu
def test_forward_rows(tmp_path, capsys):
    rows = measured(
        "speed_vs_tokens", "--only", "1,2,65,32", "--commit", "abc", out=tmp_path / "f.csv"
    )
    assert [row["contestant"] for row in rows] == ["eager", "torch-cpu-flash"]
    for row in rows:
        assert row["failed"] == ""
        assert (row["queries"], row["kv_heads"], row["head_dim"]) == ("65", "2", "32")
        assert (row["timed_by"], row["samples"], row["commit"]) == ("benchmark", "3", "abc")
        low, median, high = (float(row[f"time_{n}us"]) for n in ("low_", "", "high_"))
        assert 0 < low <= median <= high
        assert row["peak_mb"] == ""  # a CPU has no allocator to ask
        assert float(row["tflops"]) == pytest.approx(4 * 2 * 65 * 65 * 32 / median / 1e6, rel=1e-3)
    assert "eager" in capsys.readouterr().out


@on_cpu
def test_backward_and_rebuilt_rows(tmp_path):
    rows = measured("backward_vs_tokens", "--only", "1,2,65,32", out=tmp_path / "b.csv")
    assert {row["direction"] for row in rows} == {"backward"}
    assert not any(row["failed"] for row in rows)
    rows = measured("rebuild", "--only", "1,2,65,32", out=tmp_path / "r.csv")
    assert [(row["contestant"], row["direction"]) for row in rows] == [
        ("torch-cpu-flash", "forward"),
        ("one-row", "rebuild"),
        ("one-column", "rebuild"),
        ("product", "rebuild"),
    ]
    assert not any(row["failed"] for row in rows)
    assert [row["tflops"] for row in rows[1:]] == ["", "", ""]


@on_cpu
def test_a_stopped_run_keeps_what_it_has(tmp_path, monkeypatch):
    def stopped(problem, *rest):
        if problem.queries == 34:
            raise KeyboardInterrupt
        return run(problem, *rest)

    run = run_kernels.measure
    monkeypatch.setattr(run_kernels, "measure", stopped)
    out = tmp_path / "f.csv"
    with pytest.raises(KeyboardInterrupt):
        measured("speed_vs_tokens", "--only", "1,1,33,32", "--only", "1,1,34,32", out=out)
    assert [row["queries"] for row in csv.DictReader(out.open())] == ["33", "33"]


@on_cpu
@pytest.mark.parametrize("fault", ["wrong", "NaN", "raises", "runs out"])
def test_a_wrong_contestant_is_recorded_and_not_timed(fault, tmp_path, monkeypatch):
    flash = load("torch-cpu-flash")

    def broken(q, k, v, scale, causal):
        output, lse = flash.forward(q, k, v, scale, causal)
        if fault == "raises":
            raise KeyError("no such kernel\nand more")
        if fault == "runs out":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return output + (torch.nan if fault == "NaN" else 1e-3), lse

    chosen = {"torch-cpu-flash": dataclasses.replace(flash, forward=broken)}
    monkeypatch.setattr(run_kernels, "load", lambda name: chosen.get(name) or load(name))
    eager, row = measured("speed_vs_tokens", "--only", "1,2,65,32", out=tmp_path / "f.csv")
    assert eager["failed"] == ""
    assert eager["time_us"]
    assert (row["time_us"], row["samples"], row["timed_by"]) == ("", "0", "")
    words = {"raises": "KeyError: 'no such kernel", "runs out": "out of memory"}
    assert words.get(fault, "wrong: the output is off by") in row["failed"]


@on_cpu
def test_what_an_implementation_refuses_is_the_reason(monkeypatch):
    refusing = dataclasses.replace(EAGER, supports=lambda *_: "Not today.")
    monkeypatch.setattr(run_kernels, "load", lambda _: refusing)
    found = run_kernels.measure(PROBLEMS[0], [("eager", "forward")], 3, CPU)
    assert found["eager", "forward"].failed == "Not today."


@on_cpu
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["memory_vs_tokens"], "needs an NVIDIA GPU"),
        (["speed_vs_tokens", "--only", "1,2"], "give batch,heads,tokens,head_dim"),
        (["speed_vs_tokens", "--contestants", "fa9"], "fa9 is not known"),
        (["tune", "fa2-forward", "--dry"], "none here"),
    ],
)
def test_what_cannot_be_done_is_said(arguments, words, capsys):
    assert command.main(arguments) == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


def test_the_slow_get_fewer_samples():
    def samples(cost_us):
        return timing.Sampler("graph", lambda: 1.0, cost_us).samples_in(9)

    assert (samples(6e3), samples(60e3), samples(1e6)) == (9, 5, 3)


def test_samples_are_taken_in_turn():
    order = []

    def sampler(name, cost_us):
        return timing.Sampler("graph", lambda: order.append(name) or 1.0, cost_us)

    found = timing.interleaved({"a": sampler("a", 1.0), "b": sampler("b", 1e6)}, 5)
    assert "".join(order) == "abababaa"
    assert {name: len(samples) for name, samples in found.items()} == {"a": 5, "b": 3}


# --- verdicts ---------------------------------------------------------------------------------------


def row_of(contestant, problem, time_us: object = "", direction="forward", **more):
    sizes = {name: getattr(problem, name) for name in judge.SIZES} | {"kv_heads": problem.heads}
    rest = {"dtype": problem.dtype, "causal": problem.causal, "failed": "", "peak_mb": ""}
    given = {"contestant": contestant, "direction": direction, "time_us": time_us}
    return sizes | rest | given | more


def judged(target, *rows) -> list[str]:
    recipe = KernelRecipe("r", "", on_gpu=(), targets=(target,))
    return [sentence.partition(": ")[2] for sentence in judge.verdicts(recipe, rows)]


AT_64, AT_128 = square(1, 6, 5477, 64), square(1, 6, 5477, 128)
RATIO = KernelTarget("fa2", "forward", "sdpa-cudnn", 1.0, where=(("head_dim", 64),))


@pytest.mark.parametrize(("time_us", "word"), [(10.0, "reached"), (10.1, "NOT reached")])
def test_ratios(time_us, word):
    peer = row_of("sdpa-cudnn", AT_64, 10.0)
    (said,) = judged(RATIO, row_of("fa2", AT_64, time_us), peer, row_of("fa2", AT_128, 99.0))
    assert said == f"fa2 forward / sdpa-cudnn = {time_us / 10:.3f}, asked <= 1.000: {word}"


@pytest.mark.parametrize(("time_us", "word"), [(5.0, "reached"), (5.2, "NOT reached")])
def test_limits(time_us, word):
    (said,) = judged(KernelTarget("fa2", "forward", limit_us=5.0), row_of("fa2", AT_64, time_us))
    assert said == f"fa2 forward {time_us:.1f} us, asked <= 5.0 us: {word}"


def test_a_ratio_between_directions():
    target = KernelTarget("product", "rebuild", "fa2", 1.0, peer_direction="forward")
    rows = row_of("product", AT_64, 5.0, "rebuild"), row_of("fa2", AT_64, 10.0)
    assert judged(target, *rows) == ["product rebuild / fa2 = 0.500, asked <= 1.000: reached"]


def test_what_failed_is_never_reached_and_what_is_missing_never_judged():
    ours, peer = row_of("fa2", AT_64, 1.0), row_of("sdpa-cudnn", AT_64, 1.0)
    (said,) = judged(RATIO, row_of("fa2", AT_64, failed="wrong: off"), peer)
    assert said == "fa2 forward failed (wrong: off): NOT reached"
    assert judged(RATIO, ours) == ["sdpa-cudnn was not timed: not judged"]
    assert judged(RATIO, peer) == ["fa2 took no part: not judged"]
    on_cpu = dataclasses.replace(AT_64, dtype="float32")
    assert judged(RATIO, row_of("fa2", on_cpu, 1.0), row_of("sdpa-cudnn", on_cpu, 1.0)) == []


@pytest.mark.parametrize(
    ("last", "word"), [(4.0, "reached"), (4.1, "reached"), (4.3, "NOT reached")]
)
def test_linear_memory(last, word):
    recipe = KernelRecipe("m", "", on_gpu=(), linear=("fa2",))
    peaks = {1024: 9.0, 4096: 0.25, 16384: 1.0, 65536: last}
    rows = [row_of("fa2", square(1, 1, n, 64), peak_mb=peak) for n, peak in peaks.items()]
    (said,) = judge.verdicts(recipe, rows)
    assert said.endswith(f": {word}")
    (said,) = judge.verdicts(recipe, rows[:2])
    assert said.endswith("not judged")


# --- on a GPU ---------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_a_gpu_is_timed_by_graphs(tmp_path):
    names = ["--contestants", "eager", "fa2"]
    rows = measured("speed_vs_tokens", "--only", "1,12,197,64", *names, out=tmp_path / "f.csv")
    for row in rows:
        assert (row["failed"], row["timed_by"]) == ("", "graph")
        assert 0.5 < float(row["time_us"]) < 1000
        assert float(row["peak_mb"]) > 0.3  # the output alone is 0.3 MB


@pytest.mark.gpu
def test_a_graph_reads_memory_that_is_still_its_own():
    """A backward pass reads what the forward pass left; other contestants must not get that memory."""
    entries = [(name, "backward") for name in ("eager", "fa2")]
    problem = square(2, 2, 512, 64, causal=True)
    with torch.cuda.stream(
        torch.cuda.Stream()
    ):  # as `run` does: the default one cannot be captured
        found = run_kernels.measure(problem, entries, 3, torch.device("cuda"))
    assert {o.failed for o in found.values()} == {""}
    assert {o.timed_by for o in found.values()} == {"graph"}


def test_a_sampler_keeps_its_work(monkeypatch):
    monkeypatch.setattr(timing, "captured", lambda work, launches, pool: lambda: None)
    monkeypatch.setattr(timing, "elapsed_us", lambda run, lead_in: 100.0)
    one = timing.by_graph(print, 5.0, None)
    assert one.work is print


def test_a_replay_lasts_long_enough(monkeypatch):
    """A launch of 4 us looks like 200 us from Python: the graph is captured again, with more of them."""
    captures = []

    def captured(work, launches, pool):
        captures.append(launches)
        return launches

    monkeypatch.setattr(timing, "captured", captured)
    monkeypatch.setattr(timing, "elapsed_us", lambda launches, lead_in: 4.0 * launches)
    assert timing.by_graph(print, 200.0, None).sample() == 4.0
    assert captures == [10, 500]
    captures.clear()
    assert timing.by_graph(print, 2500.0, None).sample() == 4.0
    assert captures == [2, 500]
    captures.clear()
    monkeypatch.setattr(timing, "elapsed_us", lambda launches, lead_in: 50_000.0 * launches)
    assert timing.by_graph(print, 50_000.0, None).samples_in(9) == 6
    assert captures == [1]


@pytest.mark.gpu
def test_what_cannot_be_captured_is_timed_by_events():
    tensor = torch.ones(1000, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        memory = timing.GraphMemory()
        one = timing.sampler(lambda: (tensor + 1).sum().item(), tensor.device, memory)
        assert one.timed_by == "events"
        assert one.sample() > 1
        after = timing.sampler(lambda: tensor + 1, tensor.device, memory)
        assert after.timed_by == "graph"
        assert 0.1 < after.sample() < 100


@pytest.mark.gpu
def test_peaks_on_a_gpu():
    device = torch.device("cuda")
    found = run_kernels.watch(
        square(1, 1, 4096, 64), [("eager", "forward"), ("fa2", "forward")], device, {}
    )
    eager, fa2 = found["eager", "forward"], found["fa2", "forward"]
    assert not eager.failed
    assert not fa2.failed
    assert eager.peak > 4096 * 4096 * 2 > 16 * fa2.peak


def test_a_lost_gpu_ends_the_run(monkeypatch):
    def lost():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    with pytest.raises(BenchError, match="fa2 forward broke"):
        run_kernels.stop_if_lost(("fa2", "forward"), "it", torch.device("cuda"))


@on_cpu
def test_what_would_take_too_long_is_not_tried(monkeypatch):
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(run_kernels, "watched", lambda work, _: (work(), 1000))
    entries = [("eager", "forward"), ("eager", "forward+backward")]
    slow, fast = entries
    pace = {slow: 1.0}
    found = run_kernels.watch(PROBLEMS[0], entries, CPU, pace)
    assert found[slow].failed == "would take some 8450 s; not tried"
    assert found[slow].peak is None
    assert (found[fast].failed, found[fast].peak) == ("", 1000)
    assert pace[slow] == 1.0
    assert 0 < pace[fast] < 1
