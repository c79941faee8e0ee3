"""Calls that come again: they give the same bits, keep no tensor, and are left alone where more happens in them."""

import gc
import weakref
from contextlib import contextmanager
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from kernels import attention, repeat
from kernels.watch import Watch, note

by_heart = pytest.importorskip("kernels.by_heart", reason="Triton is not installed here")


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    """Each test begins without memory, and leaves that of the others as it was."""
    monkeypatch.setattr(repeat, "SEEN", {})
    monkeypatch.setattr(repeat, "KNOWN", {})


# --- the watch -------------------------------------------------------------------------------------------------


def test_the_watch_sees_what_is_allocated_and_what_computes():
    q = torch.ones(2, 3)
    with Watch() as watch:
        made = q.new_empty(4, 5).transpose(0, 1)
        torch.empty(3)
    assert [tuple(tensor.shape) for tensor in watch.made] == [(4, 5), (3,)]
    assert made.shape == (5, 4)
    assert watch.others == []
    with Watch() as watch:
        _ = -q
        q.new_zeros(3)
    assert watch.others == ["aten::neg", "aten::new_zeros"]


def test_the_watch_notes_arguments_in_the_order_of_the_kernel():
    kernel = SimpleNamespace(fn=lambda a, b, width, trace=None, block=7: None)
    note(kernel, "nobody watches", 1, (), {})
    with Watch() as watch:
        note(kernel, "compiled", 12, (1, 2), {"width": 64, "num_warps": 4})
    note(kernel, "nobody watches", 1, (), {})
    assert watch.launches == [("compiled", 12, [1, 2, 64, None, 7])]


# --- learning, with launches that are only written down --------------------------------------------------------


class WrittenDown:
    """In place of `direct.Direct`: it writes down the addresses that it would launch with."""

    calls: ClassVar[list[tuple[object, list[int]]]] = []

    def __init__(self, compiled, programs, arguments, place_of):
        self.name = compiled
        self.places = [place_of(a) for a in arguments if isinstance(a, torch.Tensor)]

    def __call__(self, stream, addresses):
        self.calls.append((self.name, [addresses[i] + behind for i, behind in self.places]))


@pytest.fixture
def on_paper(monkeypatch):
    """Launches are counted as they are noted, and repeated on paper."""
    WrittenDown.calls = []
    noted = SimpleNamespace(number=0, unheard=0)

    @contextmanager
    def counted():
        noted.number = 0
        yield noted
        noted.number += noted.unheard

    def launch(name, *arguments):
        noted.number += 1
        note(SimpleNamespace(fn=lambda *a: None), name, 1, arguments, {})

    monkeypatch.setattr(by_heart, "counted", counted)
    monkeypatch.setattr(by_heart, "Direct", WrittenDown)
    monkeypatch.setattr(by_heart, "reason_against", lambda compiled, arguments: None)
    monkeypatch.setattr(by_heart, "stream_of", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)
    noted.launch = launch
    return noted


def two_launches(launch):
    """A forward pass that needs memory of its own, and writes parts of it."""

    def forward(q, k, v):
        output = q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3]).transpose(1, 2)
        log_sum_exp = q.new_empty(q.shape[:3], dtype=torch.float32)
        part = q.new_empty(10, 8, dtype=torch.float32)
        launch("first", q, k, v, part[2:], log_sum_exp)
        launch("second", part, output)
        return output, log_sum_exp

    return forward


def qkv():
    return torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8)


def test_a_repeat_launches_with_the_addresses_of_the_new_tensors(on_paper):
    q, k, v = qkv()
    answer, known = by_heart.watched(two_launches(on_paper.launch), (q, k, v))
    assert known is not None
    q, k, v = qkv()
    output, log_sum_exp = known(q, k, v)
    assert output.stride() == answer[0].stride()
    assert log_sum_exp.dtype == torch.float32
    (first, of_first), (second, of_second) = WrittenDown.calls
    assert (first, second) == ("first", "second")
    part = of_second[0]
    addresses = [t.data_ptr() for t in (q, k, v)]
    assert of_first == [*addresses, part + 2 * 8 * 4, log_sum_exp.data_ptr()]
    assert of_second == [part, output.data_ptr()]


def test_what_is_learnt_in_inference_mode_is_good_outside(on_paper):
    with torch.inference_mode():
        _, known = by_heart.watched(two_launches(on_paper.launch), qkv())
    assert not any(tensor.is_inference() for tensor in known(*qkv()))


def test_one_tensor_three_times_is_not_taken_for_three(on_paper):
    q, _, _ = qkv()
    _, known = by_heart.watched(two_launches(on_paper.launch), (q, q, q))
    q, k, v = qkv()
    known(q, k, v)
    assert WrittenDown.calls[0][1][:3] == [t.data_ptr() for t in (q, k, v)]


def test_what_is_known_holds_no_tensor(on_paper):
    q, k, v = qkv()
    _, known = by_heart.watched(two_launches(on_paper.launch), (q, k, v))
    held = [weakref.ref(t) for t in (q, k, v)]
    del q, k, v, _
    gc.collect()
    assert known is not None
    assert [ref() for ref in held] == [None] * 3


def computes(launch, q):
    launch("of a copy", -q)


def looks_elsewhere(launch, q):
    launch("of a view", q[:, 1:])


def keeps_outside(launch, q, outside=torch.ones(3)):  # noqa: B008 made once, as a cache would
    launch("of memory from elsewhere", outside)


@pytest.mark.parametrize("more", [computes, looks_elsewhere, keeps_outside])
def test_a_call_that_does_more_is_not_learnt(on_paper, more):
    plain = two_launches(on_paper.launch)

    def forward(q, k, v):
        more(on_paper.launch, q)
        return plain(q, k, v)

    q, k, v = qkv()
    answer, known = by_heart.watched(forward, (q, k, v))
    assert known is None
    assert answer[0].shape == q.shape


def test_a_launch_that_is_not_noted_is_found_out(on_paper):
    on_paper.unheard = 1
    _, known = by_heart.watched(two_launches(on_paper.launch), qkv())
    assert known is None


def test_an_answer_that_is_part_of_something_is_not_learnt(on_paper):
    def forward(q, k, v):
        both = q.new_empty(2, *q.shape)
        on_paper.launch("one", q, both)
        return both[0], q.new_empty(q.shape[:3])

    assert by_heart.watched(forward, qkv())[1] is None


def test_while_somebody_listens_nothing_is_learnt_or_repeated(on_paper, monkeypatch):
    forward = two_launches(on_paper.launch)
    for listened, launched in ((True, 0), (False, 4), (True, 4)):
        monkeypatch.setattr(by_heart, "hooked", lambda listened=listened: listened)
        learn_three_times(forward)
        assert len(WrittenDown.calls) == launched, listened


# --- what is remembered ----------------------------------------------------------------------------------------


def learn_three_times(call):
    """Three calls of one kind."""
    for _ in range(3):
        repeat.learn(("kind",), call, qkv())


def test_the_third_call_of_a_kind_is_the_first_repeated(on_paper, monkeypatch):
    monkeypatch.setattr(repeat, "kind_of", lambda *call: ("kind",))
    plain, seen = two_launches(on_paper.launch), []

    def forward(*call):
        seen.append(len(WrittenDown.calls))
        return plain(*call)

    learn_three_times(forward)
    assert seen == [0, 0]
    assert len(WrittenDown.calls) == 2
    assert repeat.repeated(*qkv(), 1.0, False, "fa2") is not None
    assert len(WrittenDown.calls) == 4


def test_a_kind_that_cannot_be_repeated_is_watched_once(on_paper, monkeypatch):
    watched = []
    monkeypatch.setattr(
        by_heart, "watched", lambda call, tensors: (watched.append(1), (call(*tensors), None))[1]
    )
    learn_three_times(two_launches(on_paper.launch))
    assert watched == [1]
    assert not repeat.KNOWN


def test_a_gradient_is_not_repeated_past(on_paper, monkeypatch):
    monkeypatch.setattr(repeat, "kind_of", lambda *call: ("kind",))
    learn_three_times(two_launches(on_paper.launch))
    q, k, v = qkv()
    assert repeat.repeated(q, k, v.requires_grad_(), 1.0, False, "fa2") is None
    with torch.no_grad():
        assert repeat.repeated(q, k, v, 1.0, False, "fa2") is not None


def test_a_compiled_call_does_not_depend_on_what_is_known():
    torch.compiler.reset()
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(attention, fullgraph=True, backend=counting)
    for known in ("one", "more"):
        compiled(*qkv(), implementation="eager")
        repeat.KNOWN[known,] = None  # pyright: ignore[reportArgumentType]
    compiled(*qkv(), implementation="eager")
    assert len(graphs) == 1


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(repeat, "MOST_KINDS", 3)
    kept = {}
    for number in range(5):
        repeat.keep(kept, (number,), number)
    assert list(kept.values()) == [2, 3, 4]


def test_calls_on_a_cpu_have_no_kind():
    q, k, v = qkv()
    assert repeat.kind_of((q, k, v), "auto") is None
    assert repeat.kind_of((None, k, v), "auto") is None  # pyright: ignore[reportArgumentType]
    for _ in range(3):
        attention(q, k, v)
    assert not repeat.SEEN
