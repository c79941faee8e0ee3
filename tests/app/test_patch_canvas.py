"""The Python side of the patch canvas: packing, checking what a browser sends, words and colours."""

from __future__ import annotations

import json
import math
import re
import struct
from dataclasses import dataclass, replace

import numpy as np
import pytest

from app.components.patch_canvas import CanvasData, Limits, Selection, door
from app.components.patch_canvas.blob import pack
from app.text import en
from vit.colours import PROBABILITY, probability_table
from vit.grid import PatchGrid

LIMITS = Limits(layers=12, heads=6, rows=20, columns=30, prefix=("class", "register 1"))
PRESENT = Selection(layer=11, head=2, query=(3, 25))
SCRIPTS = {name: (door.FOLDER / name).read_text("utf-8") for name in door.MODULES}


@dataclass(frozen=True)
class StubFacts:
    prefix_share: np.ndarray
    entropy_bits: np.ndarray
    mean_distance: np.ndarray
    strongest: np.ndarray


def data(**changes) -> CanvasData:
    """2 layers, 3 heads, 2 x 4 patches after 2 prefix tokens; every value differs."""
    maps = (np.arange(2 * 3 * 10).reshape(2, 3, 10) / 64).astype(np.float16)
    facts = StubFacts(
        prefix_share=np.full((2, 3, 2), 0.25),
        entropy_bits=np.full((2, 3), 1.5),
        mean_distance=np.full((2, 3), np.nan),
        strongest=np.full((2, 3, 8), 4),
    )
    canvas = CanvasData(
        picture=b"\xff\xd8odd",
        size=(640, 480),
        grid=PatchGrid(2, 4, 14, (40.0, 0.0, 600.0, 280.0)),
        prefix=("class", "register 1"),
        maps=maps,
        pinned=None,
        facts=facts,  # pyright: ignore[reportArgumentType]
        words={"patch": "patch"},
    )
    return replace(canvas, **changes)


def unpack(blob: bytes) -> tuple[dict, list[bytes]]:
    (length,) = struct.unpack_from("<I", blob)
    header = json.loads(blob[4 : 4 + length])
    sections, start = [], 4 + length
    for size in header["sections"]:
        sections.append(blob[start : start + size])
        start += size
    assert start == len(blob)
    return header, sections


def test_packing_keeps_every_byte():
    canvas = data()
    header, (picture, maps, pinned) = unpack(pack(canvas, PRESENT, seq=7))
    assert header["seq"] == 7
    assert header["shape"] == [2, 3, 10]
    assert header["selection"]["query"] == [3, 25]
    assert header["grid"] == {"rows": 2, "columns": 4, "box": [40.0, 0.0, 600.0, 280.0]}
    assert picture == canvas.picture
    np.testing.assert_array_equal(np.frombuffer(maps, "<f2").reshape(2, 3, 10), canvas.maps)
    assert pinned == b""


def test_packing_a_pin_and_float32():
    canvas = data()
    pinned = canvas.maps.astype(np.float32)[::-1]
    _, sections = unpack(pack(replace(canvas, pinned=pinned), PRESENT, seq=0))
    np.testing.assert_array_equal(np.frombuffer(sections[2], "<f2").reshape(2, 3, 10), pinned)


def test_a_missing_fact_is_null_and_never_nan():
    header, _ = unpack(pack(data(), PRESENT, seq=0))
    assert header["facts"]["distance"] == [[None] * 3] * 2
    assert header["facts"]["entropy"][0][0] == 1.5


def test_the_picture_is_known_by_its_bytes():
    names = {unpack(pack(data(picture=p), PRESENT, 0))[0]["picture"] for p in (b"a", b"b", b"a")}
    assert len(names) == 2


@pytest.mark.parametrize("shape", [(2, 3, 9), (2, 3, 11), (6, 10)])
def test_maps_that_do_not_fit_the_grid_are_refused(shape):
    with pytest.raises(ValueError, match="grid of 2 x 4"):
        data(maps=np.zeros(shape, np.float16))


def test_a_pin_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="pinned"):
        data(pinned=np.zeros((1, 3, 10), np.float16))


# --- what a browser sends ---------------------------------------------------------------------------


def test_a_selection_survives_the_way_to_the_browser_and_back():
    chosen = Selection(3, 5, "register 1", "looked_at", (19, 29), "log", 0.25)
    back = json.loads(json.dumps(chosen.as_json()))
    assert Selection.from_browser(back, PRESENT, LIMITS) == chosen


@pytest.mark.parametrize(
    ("sent", "field", "expected"),
    [
        ({"layer": 99}, "layer", 11),
        ({"layer": -4}, "layer", 0),
        ({"head": True}, "head", 2),
        ({"head": 1.5}, "head", 2),
        ({"query": [99, -3]}, "query", (19, 0)),
        ({"query": [1]}, "query", (3, 25)),
        ({"query": [1, "2"]}, "query", (3, 25)),
        ({"query": "register 9"}, "query", (3, 25)),
        ({"query": "class"}, "query", "class"),
        ({"query": None}, "query", (3, 25)),
        ({"direction": "sideways"}, "direction", "looks"),
        ({"direction": ["looks"]}, "direction", "looks"),
        ({"pin": {}}, "pin", None),
        ({"pin": [0, 0]}, "pin", (0, 0)),
        ({"scale": "log"}, "scale", "log"),
        ({"scale": 1}, "scale", "shared"),
        ({"opacity": 7}, "opacity", 1.0),
        ({"opacity": math.nan}, "opacity", 0.7),
        ({"opacity": True}, "opacity", 0.7),
    ],
)
def test_what_a_browser_sends_is_clamped_or_ignored(sent, field, expected):
    chosen = Selection.from_browser(sent, PRESENT, LIMITS)
    assert getattr(chosen, field) == expected
    assert replace(chosen, **{field: getattr(PRESENT, field)}) == PRESENT


@pytest.mark.parametrize("sent", [None, 5, "layer", [1, 2]])
def test_what_is_no_selection_at_all_changes_nothing(sent):
    assert Selection.from_browser(sent, PRESENT, LIMITS) == PRESENT


def test_unpinning_is_heard():
    pinned = replace(PRESENT, pin=(1, 1))
    assert Selection.from_browser({"pin": None}, pinned, LIMITS).pin is None
    assert Selection.from_browser({}, pinned, LIMITS).pin == (1, 1)


# --- the script -------------------------------------------------------------------------------------


def test_every_script_is_in_the_bundle():
    assert set(door.MODULES) == {path.name for path in door.FOLDER.glob("*.js")}


def test_names_of_the_bundled_scripts_differ():
    pattern = re.compile(r"^(?:export )?(?:function|const|let|class) (\w+)", re.MULTILINE)
    names = [name for text in SCRIPTS.values() for name in pattern.findall(text)]
    assert len(names) == len(set(names)), sorted(n for n in set(names) if names.count(n) > 1)


def test_the_bundle_is_one_module_without_imports():
    bundle = door.bundle()
    assert not re.search(r"^import ", bundle, re.MULTILINE)
    assert re.findall(r"^export .*", bundle, re.MULTILINE) == [
        "export default function (component) {"
    ]


@pytest.mark.parametrize("name", door.MODULES)
def test_a_script_imports_only_what_stands_before_it(name):
    imported = re.findall(r'from "\./(.+?)"', SCRIPTS[name])
    before = door.MODULES[: door.MODULES.index(name)]
    assert set(imported) <= set(before)


@pytest.mark.parametrize("name", door.MODULES)
def test_data_never_becomes_html(name):
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", SCRIPTS[name])


@pytest.mark.parametrize("name", door.MODULES)
def test_a_script_is_short(name):
    lines = SCRIPTS[name].splitlines()
    assert len(lines) < 300
    assert max(map(len, lines)) <= 112


def test_every_word_is_used_and_every_used_word_exists():
    text = "\n".join(SCRIPTS.values())
    used = set(re.findall(r"(?<!/)words\.(\w+)", text))
    stems = re.findall(r"words\[`(\w+)\$\{", text)
    direct = set(re.findall(r"words\[(\w+)\]", text))
    assert direct == {"name"}  # the two directions
    used |= {word for word in en.CANVAS for stem in stems if word.startswith(stem)}
    used |= {"looks", "looked_at"}
    assert used == set(en.CANVAS)


# --- colours ----------------------------------------------------------------------------------------


def oklab(rgb: np.ndarray) -> np.ndarray:
    """Ottosson 2020. rgb [..., 3], 0 to 255."""
    c = rgb / 255
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    to_cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    to_lab = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return np.cbrt(linear @ to_cones.T) @ to_lab.T


def test_colours_are_evenly_spaced_and_get_lighter():
    lab = oklab(np.array(PROBABILITY, dtype=float))
    steps = np.linalg.norm(np.diff(lab, axis=0), axis=1)
    assert steps.max() / steps.min() < 1.15
    assert (np.diff(lab[:, 0]) > 0.03).all()


PROTANOPIA = [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
]
DEUTERANOPIA = [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.011820, 0.042940, 0.968881],
]
TRITANOPIA = [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.303900],
]


@pytest.mark.parametrize("sight", [PROTANOPIA, DEUTERANOPIA, TRITANOPIA])
def test_colours_keep_their_order_for_colour_blind_eyes(sight):
    """Machado, Oliveira and Fernandes 2009, full severity."""
    seen = np.clip(np.array(PROBABILITY) @ np.array(sight).T, 0, 255)
    assert (np.diff(oklab(seen)[:, 0]) > 0.01).all()


def test_the_table_runs_through_its_control_points():
    table = probability_table(16 * 10 + 1)
    np.testing.assert_array_equal(table[::10], PROBABILITY)
    assert table.dtype == np.uint8
