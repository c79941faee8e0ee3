"""The order in which key tiles add to dQ: a permutation for every tile of queries, and no wait without end."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest

from kernels import Problem

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not here", allow_module_level=True)

SLOTS = [1, 3, 8, 132]
PROBLEMS = [
    Problem(1, 1, 1, 1, 64),
    Problem(1, 2, 700, 700, 64),
    Problem(2, 4, 1000, 517, 64, kv_heads=2),
    Problem(1, 6, 1370, 1370, 64),
    Problem(3, 2, 100, 3000, 64, kv_heads=1),
    Problem(1, 2, 3000, 100, 64),
    Problem(1, 1, 20000, 20000, 64),
]
CAUSAL = [
    Problem(1, 1, 1, 1, 64, causal=True),
    Problem(1, 2, 700, 700, 64, causal=True),
    Problem(2, 4, 1000, 517, 64, kv_heads=2, causal=True),
    Problem(2, 4, 517, 1000, 64, kv_heads=1, causal=True),
    Problem(1, 2, 3000, 100, 64, causal=True),
    Problem(1, 1, 20000, 20000, 64, causal=True),
]


@pytest.fixture
def order(monkeypatch):
    """The device functions as plain Python, on whole numbers."""
    module = pytest.importorskip("kernels.fa3.backward_order")
    plain = SimpleNamespace(
        maximum=max, minimum=min, where=lambda condition, yes, no: yes if condition else no
    )
    monkeypatch.setattr(module, "gl", plain)
    monkeypatch.setattr(module, "FREE_STEPS", int(module.FREE_STEPS))
    names = (
        "first_query_tile",
        "last_key_tile",
        "place_of",
        "key_tile_of",
        "start_of_walk",
        "turn",
        "visit_of",
    )
    for name in names:
        monkeypatch.setattr(module, name, getattr(module, name).fn)
    return module


def walks(order, problem: Problem, slots: int, together: int, block_q: int, parts: int = 1):
    """For each ticket what it adds to, in its order: ((kv row, member, query tile), turn)."""
    block_k = 128
    query_tiles = -(-problem.queries // block_q)
    key_tiles = -(-problem.keys // block_k)
    kv_rows = problem.batch * problem.heads // problem.group
    tiles = key_tiles * kv_rows
    whole = tiles if parts == 1 else tiles // slots * slots
    for ticket in range(whole + (tiles - whole) * parts):
        row, tile, part, count, first, last = order.key_tile_of(
            ticket, key_tiles, kv_rows, min(together, kv_rows), slots, whole, parts
        )
        assert first <= tile <= last
        begin = 0
        if problem.causal:
            begin = order.first_query_tile(tile, problem.queries, problem.keys, block_q, block_k)
        per_head = query_tiles - begin
        before = per_head * problem.group * part // count
        total = per_head * problem.group * (part + 1) // count - before
        start = 0 if problem.causal else order.start_of_walk(tile, first, last, total)
        walk = (start, total, begin, per_head, before)
        visits = [order.visit_of(step, walk) for step in range(total)]
        yield [
            (
                (row, member, query_tile),
                order.turn(
                    visit, query_tile, tile, first, last, total,
                    problem.queries, problem.keys, block_q, block_k, problem.causal,
                ),
            )
            for visit, member, query_tile in visits
        ]  # fmt: skip


@pytest.mark.parametrize("together", [1, 3, 1000])
@pytest.mark.parametrize("block_q", [64, 128])
@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("problem", [*PROBLEMS, *CAUSAL], ids=str)
def test_everyone_has_a_turn_of_its_own_and_gets_it(order, problem, slots, block_q, together):
    """With room for `slots` programs that take tickets in order, the GPU never stands still."""
    waiting = list(walks(order, problem, slots, together, block_q))
    tickets = len(waiting)
    rounds = rounds_of(waiting, slots)
    if not problem.causal and problem.queries >= problem.keys and slots == 132:
        longest = -(-problem.queries // block_q) * problem.group
        assert rounds <= 1.5 * longest * -(-tickets // slots)


@pytest.mark.parametrize("parts", [2, 5, 8])
@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_walks_cut_into_parts_add_all_and_wait_no_longer(order, problem, slots, parts):
    """Those of the last wave, where it is not full; a part has one visit at least."""
    visits = -(-problem.queries // 128) * problem.group
    rounds_of(list(walks(order, problem, slots, 1, 128, min(parts, visits))), slots)


def test_walks_are_cut_where_that_leaves_less_idle():
    from kernels.fa3.backward_cut import cut_of

    assert cut_of(2048, 256, 132) == (1980, 7)
    assert cut_of(1056, 11, 132) == (1056, 1)  # eight full waves
    assert cut_of(250, 43, 132) == (250, 1)  # the last is almost full
    assert cut_of(32, 15, 132) == (32, 1)  # too short to be cut
    for tiles in range(1, 600, 7):
        whole, parts = cut_of(tiles, 64, 132)
        assert 1 <= parts <= 4
        assert whole == tiles if parts == 1 else whole % 132 == 0


def test_a_cut_makes_the_last_wave_shorter(order):
    """As at 16 heads of 16384 tokens, 68 walks are left for 132 multiprocessors."""
    problem = Problem(1, 2, 12800, 12800, 128)  # 200 tiles: one wave, and 68 left
    whole = rounds_of(list(walks(order, problem, 132, 1, 64)), 132)
    cut = rounds_of(list(walks(order, problem, 132, 1, 64, 5)), 132)
    assert cut < 0.85 * whole


def rounds_of(waiting: list[list], slots: int) -> int:
    """How long it takes, counted in visits, if every turn is checked and nobody waits without end."""
    turns: dict[tuple, list[int]] = {}
    for walk in waiting:
        for place, turn in walk:
            turns.setdefault(place, []).append(turn)
    assert all(sorted(t) == list(range(len(t))) for t in turns.values())
    added = dict.fromkeys(turns, 0)
    running: list[list] = []
    rounds = 0
    while waiting or running:
        while waiting and len(running) < slots:
            running.append(waiting.pop(0))
        free = [walk for walk in running if added[walk[0][0]] == walk[0][1]]
        assert free, "everyone waits"
        for walk in free:
            added[walk.pop(0)[0]] += 1
        running = [walk for walk in running if walk]
        rounds += 1
    return rounds
