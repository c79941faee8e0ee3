"""The choices of a sweep in the address: what is written can be read back, nonsense is dropped by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.state import NAMES
from app.state_speed import (
    DIRECTIONS,
    DTYPES,
    FEWEST,
    IN_ADDRESS,
    ON_CPU,
    ON_GPU,
    TOKENS,
    VALUES,
    Sweep,
    enough,
    from_url,
    growing,
    pixels,
    to_url,
)
from kernels import Problem
from kernels.registry import IMPLEMENTATIONS

names = st.lists(st.sampled_from(list(IMPLEMENTATIONS)), min_size=1, unique=True).map(tuple)
sweeps = st.builds(
    Sweep,
    over=st.sampled_from(list(VALUES)),
    tokens=st.sampled_from(VALUES["tokens"]),
    batch=st.sampled_from(VALUES["batch"]),
    heads=st.sampled_from(VALUES["heads"]),
    head_dim=st.sampled_from(VALUES["head_dim"]),
    dtype=st.sampled_from(DTYPES),
    causal=st.booleans(),
    direction=st.sampled_from(DIRECTIONS),
    implementations=names,
    hbm=st.booleans(),
    try_anyway=st.booleans(),
).map(enough)


@given(sweeps)
def test_what_is_written_is_read_back(sweep: Sweep) -> None:
    assert from_url(to_url(sweep), ON_GPU) == (sweep, ())


@given(st.dictionaries(st.sampled_from(list(IN_ADDRESS.values())), st.text()))
def test_any_text_gives_a_sweep_that_can_be_written(params: dict[str, str]) -> None:
    sweep, _ = from_url(params, ON_CPU)
    assert from_url(to_url(sweep), ON_CPU) == (sweep, ())


@given(sweeps)
def test_every_sweep_has_entries_that_can_be_asked_for(sweep: Sweep) -> None:
    assert len(sweep.values) >= FEWEST
    assert len(sweep.entries) == len(sweep.values) * len(sweep.implementations)
    assert len(set(sweep.entries)) == len(sweep.entries)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("over", "queries"),
        ("tokens", "1371"),
        ("tokens", "٢٥٧"),  # digits, but not ours
        ("tokens", "1e3"),
        ("batch", "-1"),
        ("heads", "0"),
        ("width", "63"),
        ("numbers", "float64"),
        ("causal", "yes"),
        ("pass", "backward"),
        ("with", ""),
        ("with", "fa2,fa2"),
        ("with", "fa2,os.system"),
        ("hbm", "2"),
        ("try", "<b>"),
    ],
)
def test_nonsense_is_dropped_by_name(name: str, text: str) -> None:
    assert from_url({name: text}, ON_CPU) == (ON_CPU, (name,))


def test_names_in_the_address_are_not_those_of_the_state() -> None:
    assert not NAMES & {*IN_ADDRESS.values()}
    assert from_url({"picture": "cat", "embed": "true"}, ON_CPU) == (ON_CPU, ())


def test_what_grows_goes_through_its_values_and_the_rest_is_fixed() -> None:
    sweep = Sweep(over="batch", batch=4, tokens=1370, implementations=("eager", "fa2"))
    assert sweep.values == (1, 2, 4)
    assert sweep.entries[:2] == (
        (Problem(1, 6, 1370, 1370, 64, "float32"), "eager", "forward"),
        (Problem(1, 6, 1370, 1370, 64, "float32"), "fa2", "forward"),
    )
    assert [entry[0].batch for entry in sweep.entries] == [1, 1, 2, 2, 4, 4]


def test_a_sweep_of_one_value_gets_more() -> None:
    assert from_url({"over": "tokens", "tokens": "257"}, ON_CPU)[0].values == TOKENS[:FEWEST]


def test_what_grew_before_takes_its_usual_value() -> None:
    sweep = growing(replace(ON_GPU, causal=True), "heads", ON_GPU)
    assert (sweep.over, sweep.tokens, sweep.heads, sweep.causal) == ("heads", 1370, 16, True)
    back = growing(sweep, "tokens", ON_GPU)
    assert (back.over, back.tokens, back.heads) == ("tokens", ON_GPU.tokens, 6)


def test_token_counts_are_those_of_square_pictures() -> None:
    assert [pixels(tokens) for tokens in TOKENS] == [224, 336, 518, 700, 1036, 1540, 2072, 3108]
    assert pixels(258) is None
