"""What can be known of other people's kernels without a GPU: what they refuse, and what we call them with.

Their results are held to the contract tests of every implementation, on a GPU.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from kernels import Problem, attention, choose, reference
from kernels.implementation import Saved
from kernels.peers import adapt, flex, sdpa_cudnn, sdpa_efficient
from kernels.registry import AUTO, IMPLEMENTATIONS, load
from tests.kernels.conftest import PEERS, make_tensors
from tests.kernels.played_packages import PLAYED, eager_kernel
from tests.numerics import assert_within_eager_error

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
SDPA = [name for name in PEERS if name.startswith("sdpa")]
PACKAGES = [name for name in PEERS if name.startswith("flash-attn")]
SMALL = Problem(2, 4, 33, 33, 40, causal=True, kv_heads=2)
SCALES = (0.3, 0.0, -0.4)


@pytest.fixture
def gpu(monkeypatch):
    """A Hopper GPU and all packages, as far as `supports` asks; its capability can be changed."""
    here = SimpleNamespace(capability=(9, 0))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: here.capability)
    monkeypatch.setattr("kernels.peers.limits.installed", lambda package: True)
    return here


def saved_forward(name: str, problem: Problem, scale: float, device: str = "cpu") -> Saved:
    """What a forward pass of this name leaves, in float32 on the CPU or without values on "meta"."""
    dtype = torch.float32 if device == "cpu" else torch.float16
    q, k, v = make_tensors(problem, "cpu", dtype)
    q, k, v = q.to(device), k.to(device), v.to(device)
    output, lse = load(name).forward(q, k, v, scale, problem.causal)
    return Saved(q, k, v, output, lse, q.new_empty(0), scale, problem.causal)


def assert_gradients(found, saved: Saved, grad_output, grad_lse) -> None:
    """Close to the float64 ones: the arithmetic here is float32."""
    inputs = (saved.q, saved.k, saved.v, saved.scale, saved.causal)
    truth = reference.gradients(*inputs, grad_output, grad_lse)
    for what, gradient, true in zip(("dQ", "dK", "dV"), found, truth, strict=True):
        assert gradient.shape == true.shape, what
        torch.testing.assert_close(gradient.double(), true, rtol=1e-4, atol=1e-5, msg=what)


# --- what they refuse --------------------------------------------------------------------------------


def test_the_peers_are_marked_and_described():
    assert [*SDPA, "flex", *PACKAGES] == PEERS
    assert len(SDPA) == len(PACKAGES) == 3
    for name in PEERS:
        peer = load(name)
        assert peer.name == name
        assert peer.summary.endswith(".")
        assert "\n" not in peer.summary
        assert peer.differentiable or peer.backward is not None


def test_auto_never_takes_a_peer(gpu):
    assert not set(PEERS) & {name for names in AUTO.values() for name in names}
    assert choose(Problem(1, 2, 65, 65, 64), CUDA) == "fa3"


@pytest.mark.parametrize("name", PEERS)
def test_refuses_a_cpu_and_a_missing_gpu(name, monkeypatch):
    on_cpu = load(name).supports(SMALL, CPU)
    assert "GPU" in on_cpu
    assert on_cpu.endswith(".")
    with pytest.raises(ValueError, match=name):
        attention(*make_tensors(SMALL, "cpu", torch.float16), causal=True, implementation=name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "no NVIDIA GPU here" in load(name).supports(SMALL, CUDA)


@pytest.mark.parametrize("name", PEERS)
def test_refuses_an_old_gpu(name, gpu):
    gpu.capability = (7, 5)
    assert "8.0" in load(name).supports(SMALL, CUDA)


@pytest.mark.parametrize("name", PACKAGES)
def test_names_the_missing_package(name, gpu, monkeypatch):
    monkeypatch.setattr("kernels.peers.limits.installed", lambda package: False)
    sentence = load(name).supports(SMALL, CUDA)
    assert sentence.startswith("The package flash")
    assert "is not installed; " in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    ("name", "problem", "words"),
    [
        *[(n, Problem(1, 2, 9, 9, 64, "float32"), "not float32") for n in SDPA[:2] + PACKAGES],
        *[(n, Problem(1, 2, 9, 9, 60), "multiples of 8") for n in SDPA + PACKAGES],
        ("sdpa-efficient", Problem(1, 2, 9, 9, 62, "float32"), "multiples of 4"),
        *[(n, Problem(1, 2, 9, 9, 264), "at most 256") for n in ("sdpa-flash", *PACKAGES)],
        ("sdpa-cudnn", Problem(1, 2, 9, 9, 136), "at most 128"),
        ("flex", Problem(1, 2, 9, 9, 8), "16 to 256"),
        ("flex", Problem(1, 2, 9, 9, 264), "16 to 256"),
        *[(n, Problem(1, 2, 9, 10, 64, causal=True), "top left") for n in SDPA],
        *[(n, Problem(70000, 2, 9, 9, 64), "65,535") for n in SDPA],
        ("sdpa-cudnn", Problem(1, 2, 1, 9, 64), "two queries"),
        ("sdpa-cudnn", Problem(1, 2, 9, 1, 64), "two queries"),
    ],
)
def test_refuses_in_one_sentence(name, problem, words, gpu):
    sentence = load(name).supports(problem, CUDA)
    assert words in sentence
    assert sentence.startswith(name)
    assert sentence.endswith(".")
    assert "\n" not in sentence


@pytest.mark.parametrize("name", PEERS)
def test_takes_what_it_can(name, gpu):
    problems = [SMALL, Problem(1, 6, 5477, 5477, 64, "bfloat16"), Problem(1, 2, 9, 10, 128)]
    if name not in SDPA:
        problems.append(Problem(1, 2, 9, 5, 64, causal=True))
    if name in ("sdpa-efficient", "flex"):
        problems.append(Problem(1, 2, 9, 9, 64, "float32"))
    for problem in problems:
        assert load(name).supports(problem, CUDA) is None
        assert load(name).reason_against_backward(problem, CUDA) is None


@pytest.mark.parametrize(
    ("name", "capability", "width", "words"),
    [
        ("flash-attn-3", (10, 0), 64, "Hopper"),
        ("flash-attn-3", (8, 0), 64, None),
        ("flash-attn-4", (9, 0), 256, None),
        ("flash-attn-4", (9, 0), 192, None),
        ("flash-attn-4", (10, 0), 256, None),
        ("flash-attn-4", (10, 0), 192, "at most 128"),
        ("flash-attn-4", (8, 0), 256, "at most 128"),
    ],
)
def test_each_generation_has_its_own_limits(name, capability, width, words, gpu):
    gpu.capability = capability
    sentence = load(name).supports(Problem(1, 2, 9, 9, width), CUDA)
    assert sentence is None if words is None else words in sentence


# --- what stands around them -------------------------------------------------------------------------


def test_copies_only_what_cannot_be_read():
    plain = torch.randn(2, 3, 7, 40, dtype=torch.float16)
    for good in (plain, plain[:, :, 1:], plain[..., 8:24], plain.transpose(1, 2), plain[:, :1]):
        assert adapt.readable(good) is good
    odd_start = torch.randn(2 * 3 * 7 * 40 + 1, dtype=torch.float16)[1:].view(2, 3, 7, 40)
    odd_rows = torch.randn(2, 3, 7, 41, dtype=torch.float16)[..., :40]
    for bad in (odd_start, odd_rows, plain[..., ::2], plain.mT):
        copy = adapt.readable(bad)
        assert torch.equal(copy, bad)
        assert copy.is_contiguous()
        assert copy.data_ptr() % 16 == 0


@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_becomes_positive_and_its_sign_moves_into_q(scale):
    q = torch.randn(1, 1, 3, 8)
    moved, positive, sign = adapt.positive_scale(q, scale)
    assert positive > 0
    assert torch.equal(moved * positive, q * scale)
    assert sign * positive == scale


@pytest.mark.parametrize("with_lse", [True, False], ids=["lse", "output"])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    "problem", [SMALL, Problem(1, 2, 9, 5, 8, causal=True)], ids=["shared heads", "sees nothing"]
)
def test_gradients_by_a_kernel_that_knows_less(problem, scale, with_lse):
    saved = saved_forward("eager", problem, scale)
    grad_output = torch.randn_like(saved.q)
    grad_lse = torch.randn(saved.q.shape[:3]) if with_lse else None
    forward = load("eager").forward
    found = adapt.gradients(saved, grad_output, grad_lse, forward, eager_kernel)
    assert_gradients(found, saved, grad_output, grad_lse)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", SDPA)
def test_torch_takes_what_we_call_it_with(name, scale):
    """torch's own kernels without values: wrong arguments raise, and the shapes are those of a GPU."""
    saved = saved_forward(name, SMALL, scale, "meta")
    assert saved.output.shape == saved.q.shape
    assert (saved.log_sum_exp.shape, saved.log_sum_exp.dtype) == (saved.q.shape[:3], torch.float32)
    assert saved.log_sum_exp.is_contiguous()
    for grad_lse in (None, torch.empty_like(saved.log_sum_exp)):
        found = load(name).backward(saved, torch.empty_like(saved.output), grad_lse)
        for gradient, model in zip(found, (saved.q, saved.k, saved.v), strict=True):
            assert (gradient.shape, gradient.dtype) == (model.shape, model.dtype)


def test_efficient_gets_its_padding_back(monkeypatch):
    """The backward kernel reads the log-sum-exp to a multiple of 32; infinity there makes P zero."""
    saved = saved_forward("eager", SMALL, 0.3)
    read = []

    def backward(grad_output, q, k, v, _bias, output, lse, *_rest, scale):
        read.append(lse)
        assert k.shape == v.shape == q.shape  # one key and value for each query head
        return torch.zeros_like(q), torch.ones_like(k), torch.ones_like(v), None

    monkeypatch.setattr(sdpa_efficient, "BACKWARD", backward)
    found = load("sdpa-efficient").backward(saved, saved.output, None)
    assert read[0].shape[-1] == 64
    assert torch.equal(read[0][..., :33], saved.log_sum_exp)
    assert torch.isposinf(read[0][..., 33:]).all()
    assert torch.equal(found[1], torch.full_like(saved.k, SMALL.group))


def test_cudnn_gets_its_statistics_back(monkeypatch):
    """As its forward kernel gives them, [batch, heads, queries, 1]."""
    given, read = [], []

    def keeping(operator, into, place):
        def call(*arguments, **options):
            found = operator(*arguments, **options)
            into.append((found if place == 1 else arguments)[place])
            return found

        return call

    monkeypatch.setattr(sdpa_cudnn, "FORWARD", keeping(sdpa_cudnn.FORWARD, given, 1))
    monkeypatch.setattr(sdpa_cudnn, "BACKWARD", keeping(sdpa_cudnn.BACKWARD, read, 5))
    saved = saved_forward("sdpa-cudnn", SMALL, 0.3, "meta")
    load("sdpa-cudnn").backward(saved, saved.output, None)
    assert read[0].shape == given[0].shape
    assert read[0].stride() == given[0].stride()


def test_cudnn_sees_one_layout_for_one_layout_of_q():
    heads_first = torch.randn(2, 4, 33, 40)
    tokens_first = heads_first.transpose(1, 2).contiguous().transpose(1, 2)
    for q in (heads_first, tokens_first):
        for other in (heads_first, tokens_first):
            assert sdpa_cudnn.ordered_like(other, q).stride() == q.stride()
            assert torch.equal(sdpa_cudnn.ordered_like(other, q), heads_first)
    expanded = heads_first[:1].expand_as(heads_first)
    assert 0 not in sdpa_cudnn.spread(expanded).stride()
    assert sdpa_cudnn.spread(heads_first) is heads_first


# --- the packages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    "problem",
    [SMALL, Problem(1, 2, 9, 5, 8, causal=True), Problem(1, 2, 9, 12, 8)],
    ids=["shared heads", "sees nothing", "more keys"],
)
@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_is_called_as_it_wants(name, problem, scale, monkeypatch):
    for played in PLAYED[name]():
        monkeypatch.setitem(sys.modules, played.__name__, played)
    saved = saved_forward(name, problem, scale)
    true_output, true_lse = reference.attention(saved.q, saved.k, saved.v, scale, problem.causal)
    torch.testing.assert_close(saved.output.double(), true_output, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(saved.log_sum_exp.double(), true_lse, rtol=1e-5, atol=1e-5)
    grad_output = torch.randn_like(saved.q)
    for grad_lse in (None, torch.randn(saved.q.shape[:3])):
        found = load(name).backward(saved, grad_output, grad_lse)
        assert_gradients(found, saved, grad_output, grad_lse)


# --- FlexAttention -----------------------------------------------------------------------------------


@pytest.fixture
def uncompiled(monkeypatch):
    """flex_attention as torch runs it without compiling: the same meaning, without its kernel."""
    monkeypatch.setattr(torch, "compile", lambda function, **_options: function)
    flex.compiled.cache_clear()
    yield
    flex.compiled.cache_clear()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(
    ("queries", "keys", "causal"), [(33, 33, False), (20, 37, True), (37, 20, True)]
)
def test_flex_masks_scales_and_shares_as_we_do(uncompiled, queries, keys, causal):
    problem = Problem(1, 4, queries, keys, 16, causal=causal, kv_heads=2)
    saved = saved_forward("flex", problem, -0.4)
    true_output, true_lse = reference.attention(saved.q, saved.k, saved.v, -0.4, causal)
    torch.testing.assert_close(saved.output.double(), true_output, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(saved.log_sum_exp.double(), true_lse, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("with_lse", [True, False], ids=["lse", "output"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("name", [n for n in IMPLEMENTATIONS if load(n).differentiable])
def test_gradients_that_torch_derives(name, causal, with_lse):
    """Those that have no backward of their own, against float64 and within eager's error."""
    problem = Problem(2, 4, 150, 200, 64, "float16", causal, kv_heads=2)
    tensors = make_tensors(problem, "cuda", torch.float16)
    grads = [torch.randn_like(tensors[0])]
    if with_lse:
        grads.append(torch.randn(tensors[0].shape[:3], device="cuda"))

    def gradients(implementation):
        leaves = [t.detach().requires_grad_() for t in tensors]
        results = attention(*leaves, causal=causal, implementation=implementation)
        return torch.autograd.grad(results[: len(grads)], leaves, grads)

    truth = reference.gradients(*tensors, 64**-0.5, causal, *grads)
    for what, g, e, t in zip("qkv", gradients(name), gradients("eager"), truth, strict=True):
        assert_within_eager_error(g, e, t, f"gradient of {what}")


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize(("queries", "kv_heads"), [(17, 1), (100, 4), (127, 1)])
def test_flex_takes_few_queries_of_shared_heads(queries, kv_heads, causal):
    """Fewer than 128 queries, of eight heads or of two, that together pass torch's block of 128."""
    problem = Problem(1, 8, queries, 130, 64, "float16", causal, kv_heads)
    tensors = make_tensors(problem, "cuda", torch.float16)
    output, _ = attention(*tensors, causal=causal, implementation="flex")
    eager, _ = attention(*tensors, causal=causal, implementation="eager")
    truth, _ = reference.attention(*tensors, 64**-0.5, causal)
    assert_within_eager_error(output, eager, truth, "output")
