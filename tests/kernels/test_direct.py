"""The direct launch: what it gives to Triton's launcher, when it does not, and that it is on where there is a GPU."""

from types import SimpleNamespace

import pytest
import torch

from kernels import attention, repeat
from kernels.implementation import Saved
from kernels.problem import Problem
from kernels.registry import load

direct = pytest.importorskip("kernels.direct", reason="Triton is not installed here")


def compiled_kernel(run, meta=None):
    """As much of Triton's compiled kernel as a direct launch asks for."""
    metadata = SimpleNamespace(target=SimpleNamespace(backend="cuda"), tensordesc_meta=meta)
    run.global_scratch_size = run.profile_scratch_size = 0
    run.launch_cooperative_grid, run.launch_pdl = False, True
    return SimpleNamespace(run=run, function=77, packed_metadata=(4, 1, 100), metadata=metadata)


class PlainLauncher:
    """Written in C by Triton, so not a Python function."""

    def __init__(self):
        self.calls = []

    def __call__(self, *arguments):
        self.calls.append(arguments)


def test_a_direct_launch_as_3_6_and_3_7_want_it():
    q = torch.ones(3)
    for newer in (False, True):
        launcher = PlainLauncher()
        run = SimpleNamespace(launch=launcher)
        if newer:
            run.arg_annotations, run.kernel_signature = "annotations", b"signature"
        arguments = [q, 5, (1, 2), q[:0]]
        launch = direct.Direct(compiled_kernel(run), 12, arguments, lambda tensor: (1, 8))
        launch(3, [1000, 2000])
        head = (12, 1, 1, 3, 77, False, True)
        if newer:
            flat = [2008, 5, (1, 2), 0]
            tail = ((4, 1, 100), *[None] * 5, "annotations", b"signature", flat)
        else:
            tail = (None, None, (4, 1, 100), *[None] * 3, 2008, 5, (1, 2), 0)
        assert launcher.calls == [head + tail]


def test_a_descriptor_is_encoded_once_for_an_address(monkeypatch):
    encoded = []

    def encode(descriptor, meta):
        encoded.append((descriptor.base.data_ptr(), meta))
        return [f"map of {descriptor.base.data_ptr()}", *descriptor.shape]

    monkeypatch.setattr(direct, "make_tensordesc_arg", encode)
    monkeypatch.setattr(direct, "MOST_MAPS", 2)
    launcher = PlainLauncher()

    def wrapped(*arguments):
        raise AssertionError("what encodes them at each launch is passed by")
        launcher(*arguments)  # it holds the launcher

    tensor = torch.ones(4, 8, dtype=torch.float16)
    described = direct.TensorDescriptor.__new__(direct.TensorDescriptor)
    described.base, described.shape = tensor, [4, 8]
    launch = direct.Direct(
        compiled_kernel(SimpleNamespace(launch=wrapped), ["meta"]), 1, [described], lambda t: (0, 0)
    )
    assert described.base is tensor
    encoded.clear()
    for address in (16, 32, 16, 48, 16):
        launch(0, [address])
    assert [address for address, _ in encoded] == [16, 32, 48, 16]
    assert [call[-3] for call in launcher.calls] == [f"map of {a}" for a in (16, 32, 16, 48, 16)]


def test_reasons_against_a_direct_launch():
    kernel = compiled_kernel(SimpleNamespace())
    assert direct.reason_against(kernel, [1, torch.ones(1)]) is None
    assert "tuple" in direct.reason_against(kernel, [(torch.ones(1), 2)])
    kernel.run.global_scratch_size = 16
    assert "memory" in direct.reason_against(kernel, [])
    kernel.run.global_scratch_size = 0
    kernel.metadata.tensordesc_meta = ["meta"]
    assert "TMA" in direct.reason_against(kernel, [])


def test_the_triton_that_is_installed_was_tried(monkeypatch):
    """Where it was not, nothing is repeated: see what `kernels.direct` calls, try it, and add it to TRIED."""
    assert repeat.tried()
    repeat.tried.cache_clear()
    monkeypatch.setattr("triton.__version__", "4.0.0")
    assert not repeat.tried()
    repeat.tried.cache_clear()


def test_hooks_are_seen_and_launches_counted():
    assert not direct.hooked()
    with direct.counted() as count:
        assert direct.hooked()
        direct.knobs.runtime.launch_enter_hook({})
    assert count.number == 1
    assert not direct.hooked()


# --- on a GPU --------------------------------------------------------------------------------------------------

SIZES = [(1, 2, 197, 64), (64, 12, 197, 64), (1, 3, 300, 64), (2, 6, 1370, 64), (1, 4, 513, 128)]
CASES = [(name, *size) for name in ("fa2", "fa3") for size in SIZES]


@pytest.fixture
def nothing_known(monkeypatch):
    """Without memory at the beginning; that of the other tests comes back."""
    monkeypatch.setattr(repeat, "SEEN", {})
    monkeypatch.setattr(repeat, "KNOWN", {})


def require(name: str) -> None:
    """Skip where this implementation does not run, and say why."""
    reason = load(name).supports(Problem(1, 1, 64, 64, 64), torch.device("cuda"))
    if reason is not None:
        pytest.skip(reason)


def packed(batch: int, heads: int, tokens: int, head_dim: int) -> list[torch.Tensor]:
    """q, k and v as a layer of a model has them: views of one tensor."""
    qkv = torch.randn(batch, tokens, 3, heads, head_dim, device="cuda", dtype=torch.float16)
    return list(qkv.permute(2, 0, 3, 1, 4))


@pytest.mark.gpu
@pytest.mark.usefixtures("nothing_known", "poisoned_empty")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_third_call_is_launched_directly_and_gives_the_same_bits(case, causal):
    name, *size = case
    require(name)
    for time in range(5):
        q, k, v = packed(*size)
        if time == 3:
            k = v = q  # one tensor, which does not make three arguments one
        if time == 4:
            v = k
        output, lse = attention(q, k, v, causal=causal, implementation=name)
        known = len(repeat.KNOWN)
        assert known == (time > 0), f"call {time}: {list(repeat.SEEN.values())}"
        plain = load(name).forward(q, k, v, size[-1] ** -0.5, causal)
        assert torch.equal(output, plain[0])
        assert torch.equal(lse, plain[1])
        assert output.stride() == plain[0].stride()


@pytest.mark.gpu
@pytest.mark.usefixtures("nothing_known")
@pytest.mark.parametrize("name", ["fa2", "fa3"])
def test_a_repeated_call_is_heard_captured_and_put_on_its_stream(name):
    require(name)
    q, k, v = (tensor.clone() for tensor in packed(1, 6, 1370, 64))
    for _ in range(3):
        attention(q, k, v, implementation=name)
    assert repeat.KNOWN
    heard = []
    direct.knobs.runtime.launch_enter_hook.add(heard.append)
    try:
        attention(q, k, v, implementation=name)
    finally:
        direct.knobs.runtime.launch_enter_hook.remove(heard.append)
    assert heard

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output, lse = attention(q, k, v, implementation=name)
    q.normal_()
    graph.replay()
    plain = load(name).forward(q, k, v, 0.125, False)
    assert torch.equal(output, plain[0])
    assert torch.equal(lse, plain[1])

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        q.mul_(2)
        output, _ = attention(q, k, v, implementation=name)
    torch.cuda.synchronize()
    assert torch.equal(output, load(name).forward(q, k, v, 0.125, False)[0])


@pytest.mark.gpu
@pytest.mark.usefixtures("nothing_known")
def test_tensors_that_begin_anywhere_are_not_repeated_past_their_copy():
    require("fa3")
    for _ in range(4):
        q, k, v = torch.randn(3, 1 * 2 * 300 * 64 + 1, device="cuda", dtype=torch.float16)[:, 1:]
        q, k, v = (tensor.view(1, 2, 300, 64) for tensor in (q, k, v))
        output, _ = attention(q, k, v, implementation="fa3")
        plain, _ = attention(q.clone(), k.clone(), v.clone(), implementation="fa3")
        assert torch.equal(output, plain)


@pytest.mark.gpu
@pytest.mark.usefixtures("nothing_known", "poisoned_empty")
@pytest.mark.parametrize("with_lse", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_gradients_are_repeated_with_the_same_bits(size, with_lse):
    require("fa2")
    backward = load("fa2").backward
    assert backward is not None
    for time in range(4):
        q, k, v = (tensor.requires_grad_() for tensor in packed(*size))
        output, lse = attention(q, k, v, implementation="fa2")
        outer = torch.randn_like(output), torch.randn_like(lse) if with_lse else None
        results = (output, lse)[: 1 + with_lse]
        grads = torch.autograd.grad(results, (q, k, v), outer[: 1 + with_lse])
        kinds = [kind[0] for kind in repeat.KNOWN if kind]
        assert kinds == (["forward", "backward"] if time else []), f"call {time}"
        scale = size[-1] ** -0.5
        with torch.no_grad():
            plain = load("fa2").forward(q, k, v, scale, False)
            saved = Saved(q, k, v, *plain, q.new_empty(0), scale, False)
            expected = backward(saved, *outer)
        for one, other in zip(grads, expected, strict=True):
            assert torch.equal(one, other)
