"""The Python side of the tile player: packing, what a browser sends, words and scripts."""

from __future__ import annotations

import json
import math
import re
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch

from app.components.tile_player import PlayerEvent, door, modules, story_lines, style
from app.components.tile_player.blob import Packed, half_will_do, pack
from app.text.player import PLAYER
from kernels.trace import BROKEN, TITLES, Step, Walk
from tests.browser.player_cases import CASES, player_data

SCRIPTS = {name: (door.FOLDER / name).read_text("utf-8") for name in door.MODULES}
OWN = {name: text for name, text in SCRIPTS.items() if "/" not in name}
IMPLEMENTATIONS = ("naive", "fa1", "fa2", "fa3", "fa2-backward")


class Blob:
    """The reader of `blob.js`, in numpy."""

    def __init__(self, blob: bytes) -> None:
        (length,) = struct.unpack_from("<I", blob)
        self.header = json.loads(blob[4 : 4 + length])
        self.base = 4 + length
        self.bytes = blob

    def array(self, place: int) -> np.ndarray:
        entry = self.header["sections"][place]
        start = self.base + entry["start"]
        assert start % 4 == 0
        content = self.bytes[start : start + entry["bytes"]]
        kinds = {"float16": "<f2", "float32": "<f4", "bytes": "u1"}
        return np.frombuffer(content, kinds[entry["kind"]]).reshape(entry["shape"])


@pytest.mark.parametrize("name", ["small", "causal", "broken"])
def test_every_number_arrives_to_a_thousandth(name):
    data = player_data(CASES[name])
    blob = Blob(pack(data))
    for walk, packed in ((data.walk, "walk"), (data.broken_walk, "broken")):
        if walk is None:
            assert blob.header[packed] is None
            continue
        sent = blob.header[packed]
        assert len(sent["steps"]) == len(walk.steps)
        for step, there in zip(walk.steps, sent["steps"], strict=True):
            assert (there["key_start"], there["keys"]) == (step.key_start, step.keys)
            assert (there["bytes_read"], there["bytes_written"]) == (step.bytes_read, 0)
            for array in ("scores", "running_max", "running_sum", "rescale", "output"):
                got = blob.array(there["arrays"][array])
                np.testing.assert_allclose(got, getattr(step, array).numpy(), rtol=1e-3, atol=0)
        np.testing.assert_allclose(blob.array(sent["output"]), walk.output.numpy(), rtol=1e-3)
        np.testing.assert_array_equal(blob.array(sent["log_sum_exp"]), walk.log_sum_exp.numpy())


def test_what_exponentials_are_taken_of_is_sent_exactly():
    data = player_data(CASES["small"])
    blob = Blob(pack(data))
    for step, there in zip(data.walk.steps, blob.header["walk"]["steps"], strict=True):
        for array in ("scores", "running_max", "running_sum", "rescale"):
            got = blob.array(there["arrays"][array])
            np.testing.assert_array_equal(got, getattr(step, array).numpy())


def test_infinities_and_not_a_number_survive():
    data = player_data(CASES["small"])
    odd = data.walk.steps[0].output.clone()
    odd[0, :3] = torch.tensor([math.nan, math.inf, -math.inf])
    steps = (replace(data.walk.steps[0], output=odd), *data.walk.steps[1:])
    walk = replace(data.walk, steps=steps, largest_error=math.inf)
    blob = Blob(pack(replace(data, walk=walk)))
    got = blob.array(blob.header["walk"]["steps"][0]["arrays"]["output"])
    np.testing.assert_allclose(got, odd.numpy(), rtol=1e-3)
    assert blob.header["walk"]["largest_error"] == "inf"


def test_half_precision_only_where_it_is_good_enough():
    assert half_will_do(np.array([1.0, -0.333, 60000.0, 0.0, -np.inf, np.nan], np.float32))
    assert not half_will_do(np.array([1.0, 1e-6], np.float32))
    assert not half_will_do(np.array([1.0, 70000.0], np.float32))


def test_the_same_array_is_sent_once():
    data = player_data(CASES["broken"])
    blob = Blob(pack(data))
    right, broken = (blob.header[name]["steps"][3]["arrays"] for name in ("walk", "broken"))
    assert right["scores"] == broken["scores"]
    assert right["output"] != broken["output"]


def test_a_walk_at_518_px_with_its_broken_twin_is_under_3_mb():
    assert len(pack(player_data(CASES["broken"]))) < 3_000_000


def naive_walk(tokens: int) -> Walk:
    """Two tiles of naive's three kernels, of random numbers that belong together."""
    right = player_data(CASES["small"]).walk
    rows, rng = right.rows, np.random.default_rng(1)
    scores = torch.tensor(rng.standard_normal((rows, tokens)), dtype=torch.float32)
    weights = scores.softmax(1)

    def step(phase: str, start: int, end: int, **extra) -> Step:
        return replace(
            right.steps[0],
            phase=phase,
            key_start=start,
            keys=end - start,
            scores=scores[:, start:end],
            extra=extra,
        )

    half = tokens // 2
    tiles = [(0, half), (half, tokens)]
    steps = [step("pairs", *tile) for tile in tiles]
    steps.append(step("softmax", 0, tokens, weights=weights))
    steps += [step("sums", a, b, weights=weights[:, a:b]) for a, b in tiles]
    return replace(right, implementation="naive", steps=tuple(steps))


def test_whole_rows_are_sent_as_tiles_only_where_they_are_the_same():
    data = player_data(CASES["small"])
    walk = naive_walk(data.walk.tokens)
    sent = Blob(pack(replace(data, walk=walk))).header["walk"]["steps"][2]
    assert sent["joined"] == {"scores": "pairs", "weights": "sums"}
    assert not {"scores", "weights"} & set(sent["arrays"])
    other = replace(walk.steps[2], extra={"weights": 2 * walk.steps[2].extra["weights"]})
    walk = replace(walk, steps=(*walk.steps[:2], other, *walk.steps[3:]))
    blob = Blob(pack(replace(data, walk=walk)))
    sent = blob.header["walk"]["steps"][2]
    assert sent["joined"] == {"scores": "pairs"}
    got = blob.array(sent["arrays"]["weights"])
    np.testing.assert_allclose(got, other.extra["weights"].numpy(), rtol=1e-3)


def test_opening_places_are_moved_into_the_walk():
    header = Blob(pack(player_data(CASES["small"], step=99, row=-4))).header
    assert (header["step"], header["row"]) == (len(header["walk"]["steps"]) - 1, 0)


def test_another_walk_has_another_name_and_another_place_has_not():
    small = player_data(CASES["small"])
    assert Packed(small).walk_id == Packed(replace(small, start_step=2)).walk_id
    assert Packed(small).walk_id != Packed(player_data(CASES["first"])).walk_id
    assert Packed(small).walk_id != Packed(replace(small, caption="layer 1, head 1")).walk_id


def test_contradictions_are_refused():
    small = player_data(CASES["small"])
    with pytest.raises(ValueError, match="151 tokens, but the picture has 153"):
        replace(small, prefix=("class", "register 1", "register 2"))
    with pytest.raises(ValueError, match="nothing to play"):
        replace(small, walk=replace(small.walk, steps=()))
    with pytest.raises(ValueError, match="other tiles or other steps"):
        replace(small, broken_walk=replace(small.walk, steps=small.walk.steps[:-1]))


# --- the door ---------------------------------------------------------------------------------------


@pytest.fixture
def session(monkeypatch):
    """A visitor's session, and what was handed to the browser in it."""
    state: dict = {}
    sent: list[bytes] = []
    monkeypatch.setattr(door.st, "session_state", state)
    monkeypatch.setattr(door, "_component", lambda key, data, on_place_change: sent.append(data))
    return state, sent


def heard(state: dict, data, step, row, seq) -> None:
    place = {"step": step, "row": row, "seq": seq, "walk": Packed(data).walk_id}
    state["p"] = {"place": place}


def test_a_stop_is_returned_once_and_the_bytes_stay(session):
    state, sent = session
    data = player_data(CASES["small"])
    assert door.tile_player(data, key="p") is None
    heard(state, data, 3, 7, 5)
    assert door.tile_player(data, key="p") == PlayerEvent(3, 7)
    moved = replace(data, start_step=3, followed_row=7)
    assert door.tile_player(moved, key="p") is None
    assert sent[0] == sent[1] == sent[2]


def test_a_place_from_elsewhere_moves_the_player(session):
    state, sent = session
    data = player_data(CASES["small"])
    door.tile_player(data, key="p")
    heard(state, data, 3, 7, 5)
    door.tile_player(data, key="p")
    door.tile_player(replace(data, start_step=3, followed_row=7), key="p")
    door.tile_player(data, key="p")  # back to the first step, by a link
    header = Blob(sent[-1]).header
    assert (header["step"], header["row"], header["seq"]) == (0, 0, 5)


@pytest.mark.parametrize(
    "place",
    [None, "odd", {}, {"step": "3", "row": 1, "seq": 1}, {"step": True, "row": 1, "seq": 1}],
)
def test_nonsense_from_a_browser_is_not_taken(session, place):
    state, _ = session
    data = player_data(CASES["small"])
    if isinstance(place, dict):
        place = {**place, "walk": Packed(data).walk_id}
    state["p"] = {"place": place}
    assert door.tile_player(data, key="p") is None


def test_a_stop_outside_the_walk_is_moved_in_and_one_of_another_walk_is_not_taken(session):
    state, _ = session
    data = player_data(CASES["small"])
    heard(state, data, 999, -3, 2)
    assert door.tile_player(data, key="p") == PlayerEvent(len(data.walk.steps) - 1, 0)
    heard(state, player_data(CASES["first"]), 1, 1, 9)
    assert door.tile_player(data, key="p") is None


# --- words ------------------------------------------------------------------------------------------


def test_each_step_has_its_story_and_its_formulas():
    for name in IMPLEMENTATIONS:
        told = {step.title for step in story_lines(name)}
        for part in ("pairs", "softmax", "sums") if name == "naive" else (name,):
            assert set(TITLES[part]) <= told
            titles = {line[0] for line in PLAYER["formula"][part].values()}
            assert titles <= told
            assert set(PLAYER["state_rows"][part])


def test_each_mistake_of_a_flash_kernel_changes_a_formula():
    for mistake in BROKEN.values():
        for name in set(mistake.applies_to) - {"naive"}:
            changed = PLAYER["formula_broken"][mistake.name][name]
            assert set(changed) & set(PLAYER["formula"][name])


def test_every_word_is_used_and_every_used_word_exists():
    text = "\n".join(OWN.values())
    used = set(re.findall(r"(?<!/)words\.(\w+)", text))
    assert used == set(PLAYER)


# --- the scripts ------------------------------------------------------------------------------------


def test_every_script_is_in_the_bundle():
    assert set(OWN) == {path.name for path in door.FOLDER.glob("*.js")}


def test_names_of_the_bundled_scripts_differ():
    pattern = re.compile(r"^(?:export )?(?:function|const|let|class) (\w+)", re.MULTILINE)
    names = [name for text in SCRIPTS.values() for name in pattern.findall(text)]
    assert len(names) == len(set(names)), sorted(n for n in set(names) if names.count(n) > 1)


def test_the_bundle_is_one_module_without_imports():
    assert not re.search(r"^import ", modules(), re.MULTILINE)
    assert [line.split("(")[0] for line in re.findall(r"^export .*", modules(), re.MULTILINE)] == [
        "export function mount",
        "export default function ",
    ]
    assert "http:" not in modules().replace("http://www.w3.org/2000/svg", "")
    assert "url(" not in style()


@pytest.mark.parametrize("name", OWN)
def test_a_script_imports_only_what_stands_before_it(name):
    imported = [path.removeprefix("./") for path in re.findall(r'from "(.+?)"', SCRIPTS[name])]
    assert set(imported) <= set(door.MODULES[: door.MODULES.index(name)])


@pytest.mark.parametrize("name", OWN)
def test_data_never_becomes_html(name):
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", OWN[name])


@pytest.mark.parametrize("name", OWN)
def test_a_script_is_short(name):
    lines = OWN[name].splitlines()
    assert len(lines) < 300
    assert [line for line in lines if len(line) > 112] == []
