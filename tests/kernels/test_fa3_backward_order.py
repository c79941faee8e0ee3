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
    for name in ("first_query_tile", "last_key_tile", "key_tile_of", "start_of_walk", "turn"):
        monkeypatch.setattr(module, name, getattr(module, name).fn)
    return module


def walks(order, problem: Problem, slots: int, together: int, block_q: int, block_k: int = 128):
    """For each ticket what it adds to, in its order: ((kv row, member, query tile), turn)."""
    query_tiles = -(-problem.queries // block_q)
    key_tiles = -(-problem.keys // block_k)
    kv_rows = problem.batch * problem.heads // problem.group
    for ticket in range(key_tiles * kv_rows):
        row, tile, first, last = order.key_tile_of(
            ticket, key_tiles, kv_rows, min(together, kv_rows), slots
        )
        assert first <= tile <= last
        begin = 0
        if problem.causal:
            begin = order.first_query_tile(tile, problem.queries, problem.keys, block_q, block_k)
        per_head = query_tiles - begin
        total = per_head * problem.group
        start = 0 if problem.causal else order.start_of_walk(tile, first, last, total)
        visits = [(start + step) % total for step in range(total)]
        yield [
            (
                (row, visit // per_head, begin + visit % per_head),
                order.turn(
                    visit, begin + visit % per_head, tile, first, last, total,
                    problem.queries, problem.keys, block_q, block_k, problem.causal,
                ),
            )
            for visit in visits
        ]  # fmt: skip


@pytest.mark.parametrize("together", [1, 3, 1000])
@pytest.mark.parametrize("block_q", [64, 128])
@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("problem", [*PROBLEMS, *CAUSAL], ids=str)
def test_everyone_has_a_turn_of_its_own_and_gets_it(order, problem, slots, block_q, together):
    """With room for `slots` programs that take tickets in order, the GPU never stands still."""
    waiting = list(walks(order, problem, slots, together, block_q))
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
    if not problem.causal and problem.queries >= problem.keys and slots == 132:
        longest = -(-problem.queries // block_q) * problem.group
        assert rounds <= 1.5 * longest * -(
            -sum(1 for _ in walks(order, problem, slots, together, block_q)) // slots
        )
