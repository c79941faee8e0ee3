"""fa3's forward pass: which program takes what, what the compiler makes of it, and its results on an H100 or H200."""

from __future__ import annotations

import importlib.util
from collections import Counter
from types import FunctionType, SimpleNamespace

import pytest
import torch

from kernels import Problem, reference
from kernels.compiled import SHARED_BYTES, Compiled, Request, compile_for
from kernels.registry import load
from kernels.sass import written_in_flight
from tests.kernels.conftest import make_tensors
from tests.numerics import assert_within_eager_error, score_floor

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton comes with Linux only"
)
PROGRAMS = 132  # multiprocessors of an H100 or H200


# --- which program takes what -----------------------------------------------------------------------------


def pieces(problem: Problem, consumers: int, block_k: int, programs: int = PROGRAMS):
    """What the device helpers of `schedule` work out, run as plain Python: program -> its pieces."""
    from kernels.fa3 import schedule

    order, plan = schedule.plan_for(problem, consumers, block_k, programs)
    gl = SimpleNamespace(
        cdiv=lambda a, b: -(-a // b),
        minimum=min,
        maximum=max,
        where=lambda condition, a, b: a if condition else b,
        num_programs=lambda axis: programs,
    )
    scope = {"gl": gl, "ROWS": 64, "SHARES": 0, "WAVES": 1, "CAUSAL": 2}
    turns_of, piece_at = (
        FunctionType(getattr(schedule, name).fn.__code__, scope)
        for name in ("turns_of", "piece_at")
    )
    found = []
    for program in range(programs):
        turns, at = turns_of(program, plan, problem.keys, consumers, block_k, order)
        taken = []
        for turn in range(turns):
            piece, at = piece_at(
                turn, at, program, plan, problem.queries, problem.keys, consumers, block_k, order
            )
            taken.append(piece)
        found.append(taken)
    return found


FULL = [
    Problem(16, 6, 1370, 1370, 64),
    Problem(1, 6, 5477, 5477, 64),
    Problem(1, 16, 16384, 16384, 64),
    Problem(1, 6, 21905, 21905, 64),
    Problem(1, 1, 100, 100, 64),
    Problem(1, 3, 300, 129, 64),
    Problem(300, 12, 1, 1, 64),
    Problem(2, 3, 1, 1000, 64),
    Problem(1, 2, 1025, 1000, 64),
]
HALF_SEEN = [
    Problem(1, 2, 2500, 2500, 64, causal=True),
    Problem(4, 40, 2048, 2048, 64, causal=True),
    Problem(3, 20, 700, 900, 64, causal=True),
    Problem(3, 20, 900, 700, 64, causal=True),
    Problem(1, 1, 70, 30, 64, causal=True),
]


@needs_triton
@pytest.mark.parametrize("consumers", [1, 2, 3])
@pytest.mark.parametrize("problem", FULL + HALF_SEEN, ids=str)
def test_every_tile_is_taken_once(problem, consumers):
    """Each block of 64 queries of each head meets each key tile that it sees, in one program."""
    taken = Counter()
    for program in pieces(problem, consumers, 128):
        for head, block, active, first, end, _ in program:
            assert 0 < active <= consumers
            taken.update(
                (head, block + i, tile) for i in range(active) for tile in range(first, end)
            )
    blocks, tiles = -(-problem.queries // 64), -(-problem.keys // 128)
    heads = problem.batch * problem.heads
    offset = problem.keys - problem.queries
    seen = {
        (head, block, tile)
        for head in range(heads)
        for block in range(blocks)
        for tile in range(tiles)
        if not problem.causal or tile * 128 < block * 64 + 64 + offset
    }
    assert seen <= set(taken), sorted(seen - set(taken))[:3]
    assert set(taken.values()) == {1}
    assert max(head for head, _, _ in taken) == heads - 1
    assert max(block for _, block, _ in taken) == blocks - 1


@needs_triton
@pytest.mark.parametrize("problem", [*FULL[:4], *HALF_SEEN[1:2]], ids=str)
def test_no_program_has_much_more_to_do(problem):
    """A piece of one or two blocks takes about 0.52 and 0.74 as long as one of three."""
    work = [
        sum(
            (0.52, 0.74, 1.0)[active - 1] * (end - first) for _, _, active, first, end, _ in program
        )
        for program in pieces(problem, 3, 128)
    ]
    assert max(work) <= 1.06 * sum(work) / len(work)


@needs_triton
def test_parts_of_a_tile_have_places_of_their_own():
    slots = [
        piece[5] for program in pieces(Problem(1, 6, 5477, 5477, 64), 3, 128) for piece in program
    ]
    parts = [slot for slot in slots if slot >= 0]
    assert len(parts) > PROGRAMS
    assert len(parts) == len(set(parts))
    assert max(parts) < 2 * PROGRAMS


# --- what the compiler makes of it ---------------------------------------------------------------------------

LISTING = """
 /*0100*/  HGMMA.64x64x16.F32.BF16 R88, R24, gdesc[UR16].tnspB, R88 ;
 /*0110*/  HGMMA.64x64x16.F32.BF16 R88, R28, gdesc[UR16].tnspB, R88, gsb0 ;
 /*0120*/  FADD R10, R11, R12 ;
 {between}
 /*0140*/  WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
 {after}
"""


@pytest.mark.parametrize(
    ("instruction", "found"),
    [
        ("/*0130*/  FMUL R25, R1, R2 ;", 1),
        ("/*0130*/  @P0 MUFU.EX2 R119, R1 ;", 1),
        ("/*0130*/  LDS.128 R20, [R1] ;", 0),
        ("/*0130*/  LDS.128 R22, [R1] ;", 1),
        ("/*0130*/  STS [R25], R24 ;", 0),
        ("/*0130*/  FADD R120, R24, R25 ;", 0),
    ],
)
def test_a_write_in_flight_is_found(instruction, found):
    assert len(written_in_flight(LISTING.format(between=instruction, after=""))) == found
    assert not written_in_flight(LISTING.format(between="", after=instruction))


WIDTHS = (64, 128, 256, 40, 96)

ALLOWED_SPILLS = {
    (256, True): 24,
    (128, True): 24,
    (128, False): 16,
    (96, True): 24,
    (96, False): 16,
}
"""(head_dim, causal) -> bytes of a thread: numbers needed once a piece, beside sums that are needed always."""


@pytest.fixture(scope="module")
def compiled() -> dict[Request, list[Compiled] | str]:
    """What a launch on an H100 would run: full masks at three orders of pieces, one picture, and causal masks."""
    problems = [
        Problem(1, 16, 4000, 4000, width, dtype, causal)
        for width, dtype in [(w, "bfloat16") for w in WIDTHS] + [(64, "float16"), (128, "float16")]
        for causal in (False, True)
    ] + [Problem(batch, 6, 1370, 1370, 64, "bfloat16") for batch in (1, 16)]
    requests = [Request("fa3", problem) for problem in problems]
    return dict(zip(requests, compile_for(requests), strict=True))


@needs_triton
@pytest.mark.slow
def test_hopper_has_room_for_it(compiled):
    for request, kernels in compiled.items():
        assert not isinstance(kernels, str), f"{request}: {kernels}"
        for kernel in kernels:
            allowed = ALLOWED_SPILLS.get((request.problem.head_dim, request.problem.causal), 0)
            assert kernel.stack_bytes <= allowed, f"{request}: {kernel.kernel} {kernel.stack_bytes}"
            assert kernel.shared_bytes <= SHARED_BYTES["sm_90"], request


@needs_triton
@pytest.mark.slow
def test_products_are_asynchronous_and_left_alone(compiled):
    """The hazard of an early write is looked for in the machine code itself."""
    for request, (forward, *_) in compiled.items():
        assert forward.kernel == "forward_kernel"
        assert forward.instructions["HGMMA"] > 0
        assert "HMMA" not in forward.instructions, request
        assert not forward.written_in_flight, f"{request}: {forward.written_in_flight[:3]}"


# --- on a GPU ------------------------------------------------------------------------------------------------


def require_hopper() -> None:
    reason = load("fa3").supports(Problem(1, 1, 300, 300, 64), torch.device("cuda"))
    if reason:
        pytest.skip(reason)


@pytest.fixture
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """A width of a head; with "shared", tiles are shared by three warpgroups where one would be taken."""
    if isinstance(request.param, int):
        return request.param
    forward = pytest.importorskip("kernels.fa3.forward")
    monkeypatch.setattr(forward, "MOST_KEYS_OF_FEW", 0)
    monkeypatch.setattr(forward, "form_and_plan", forward.form_and_plan.__wrapped__)
    return int(request.param.split()[0])


def launch(q, k, v, causal=False, **settings):
    from kernels.fa3.forward import launch_forward

    return launch_forward(q, k, v, q.shape[-1] ** -0.5, causal, **settings)


def check(problem: Problem, q, k, v) -> None:
    """Straight from the launcher, so that few keys take this kernel too."""
    scale = problem.head_dim**-0.5
    output, lse = launch(q, k, v, problem.causal)
    eager, eager_lse = load("eager").forward(q, k, v, scale, problem.causal)
    truth, true_lse = reference.attention(q, k, v, scale, problem.causal)
    floor = score_floor(true_lse, truth)
    assert_within_eager_error(output, eager, truth, "output", floor)
    assert_within_eager_error(lse, eager_lse, true_lse, "log-sum-exp", 1e-5)


@pytest.mark.gpu
@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize(
    "width", [8, "8 shared", 64, "64 shared", 96, 128, 200, 256], indirect=True
)
def test_every_length(width, dtype):
    require_hopper()
    for queries, keys, causal in [
        (1, 1, False), (1, 300, True), (64, 64, True), (65, 129, False), (127, 128, True),
        (257, 385, False), (300, 128, True), (385, 1000, True), (1370, 1370, False),
    ]:  # fmt: skip
        problem = Problem(2, 4, queries, keys, width, causal=causal, kv_heads=2)
        check(problem, *make_tensors(problem, "cuda", dtype))


@pytest.mark.gpu
@pytest.mark.parametrize(("batch", "heads"), [(64, 12), (300, 12), (1, 1)])
def test_many_heads_and_one(batch, heads):
    require_hopper()
    problem = Problem(batch, heads, 100, 100, 64)
    check(problem, *make_tensors(problem, "cuda", torch.bfloat16))


@pytest.mark.gpu
@pytest.mark.parametrize("width", [64, "64 shared", 128], indirect=True)
def test_slices_of_one_projection_are_read_in_place(width):
    """Strides as a fused q, k, v has them, keys shared by all heads through stride 0, and a NaN next door."""
    require_hopper()
    problem = Problem(2, 3, 500, 500, width)
    fused = torch.full((2, 520, 3, 4, width), torch.nan, device="cuda", dtype=torch.bfloat16)
    views = [t.transpose(1, 2)[:, :3, :500] for t in fused.unbind(2)]
    q, k, v = make_tensors(problem, "cuda", torch.bfloat16)
    for view, values in zip(views, (q, k, v), strict=True):
        view.copy_(values)
    in_place, _ = launch(views[0], views[1], views[2])
    assert torch.equal(in_place, launch(q, k, v)[0])
    shared = k[:, :1].expand(-1, 3, -1, -1)
    assert torch.equal(launch(q, shared, v)[0], launch(q, shared.contiguous(), v)[0])


@pytest.mark.gpu
@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("most", [4, 12, 150])
@pytest.mark.parametrize("width", [64, "64 shared", 128, 256], indirect=True)
def test_maxima_that_rise_from_tile_to_tile(width, most):
    """The walk begins where scores are small; at 150 weights against the first maximum are beyond float32."""
    require_hopper()
    for queries, keys, causal in [(517, 389, False), (300, 1290, True), (700, 640, True)]:
        problem = Problem(2, 3, queries, keys, width, causal=causal)
        for dtype in (torch.bfloat16, torch.float16):
            q, k, v = make_tensors(problem, "cuda", dtype)
            k = k * torch.linspace(most, 1, keys, device="cuda", dtype=dtype)[:, None]
            check(problem, q, k, v)


@pytest.mark.gpu
@pytest.mark.parametrize("width", [64, "64 shared", 128, 256], indirect=True)
def test_a_row_whose_maximum_rises_changes_no_other(width):
    """A warp works tiles out again for all of its rows where one row needs it."""
    require_hopper()
    q, k, v = make_tensors(Problem(1, 2, 400, 1000, width), "cuda", torch.bfloat16)
    k = k * torch.linspace(12, 1, 1000, device="cuda", dtype=k.dtype)[:, None]
    small = q / 16
    mixed = small.clone()
    mixed[:, :, ::5] = 4 * q[:, :, ::5]
    (alone, alone_lse), (beside, beside_lse) = launch(small, k, v), launch(mixed, k, v)
    others = torch.arange(400, device="cuda") % 5 > 0
    assert torch.equal(alone[:, :, others], beside[:, :, others])
    assert torch.equal(alone_lse[:, :, others], beside_lse[:, :, others])


@pytest.mark.gpu
@pytest.mark.parametrize("width", [64, 128])
def test_split_keys_change_rounding_only(width):
    require_hopper()
    problem = Problem(1, 6, 5477, 5477, width)
    q, k, v = make_tensors(problem, "cuda", torch.bfloat16)
    whole, whole_lse = launch(q, k, v, split=False)
    split, split_lse = launch(q, k, v)
    assert (whole.float() - split.float()).abs().max() <= 2e-3
    assert (whole_lse - split_lse).abs().max() <= 1e-5


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("width", [64, 128, 256])
def test_whole_numbers_averaged(width, dtype):
    """Q = 0 weighs every key alike: sums of whole numbers over a power of two are exact, unless keys are split."""
    require_hopper()
    for tokens in (128, 256, 1024, 4096):
        q = torch.zeros(2, 8, tokens, width, device="cuda", dtype=dtype)
        for run in range(20):
            v = torch.randint(-4, 5, q.shape, device="cuda").to(dtype)
            output, _ = launch(q, torch.randn_like(v), v, split=False)
            mean = v.double().mean(2, keepdim=True).to(dtype)
            assert torch.equal(output, mean.expand_as(output)), f"{tokens} tokens, run {run}"


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(
    ("batch", "heads", "tokens", "width"),
    [(1, 6, 5477, 64), (1, 6, 1370, 64), (16, 6, 1370, 64), (4, 16, 1024, 128), (30, 2, 799, 256)],
)
def test_the_same_bits_in_250_runs(batch, heads, tokens, width, causal):
    require_hopper()
    q, k, v = torch.randn(3, batch, heads, tokens, width, device="cuda").bfloat16().unbind()
    first = launch(q, k, v, causal)
    for run in range(250):
        again = launch(q, k, v, causal)
        assert torch.equal(again[0], first[0]), f"output differs in run {run}"
        assert torch.equal(again[1], first[1]), f"log-sum-exp differs in run {run}"
