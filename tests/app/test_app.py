"""The page as a visitor meets it, without a browser; clicks on the canvas are tests/browser's."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

from app import compute
from app.memory import SIDES, Forecast
from app.samples import SAMPLES
from app.text import en
from kernels.selftest import SelfTest
from vit.model import VisionTransformer

Visit = Callable[..., AppTest]
# Whole pages: together a quarter of a minute, so not in the quick tests.
pytestmark = [pytest.mark.usefixtures("fresh_server"), pytest.mark.slow]


def picture(width: int = 80, height: int = 60, colour: str = "orange") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(file, "PNG")
    return file.getvalue()


def upload(page: AppTest, name: str, content: bytes) -> AppTest:
    page.file_uploader[0].upload(name, content, "image/png")
    return page.run()


def address(page: AppTest) -> dict[str, str]:
    """The address's parameters; AppTest gives as a list what it was not given as a text."""
    params = page.query_params.items()
    return {name: value if isinstance(value, str) else value[0] for name, value in params}


def sentences(page: AppTest) -> list[str]:
    return [error.value for error in page.error]


def is_drawn(page: AppTest) -> bool:
    """The canvas stands on the page, and the proof under it."""
    assert not page.exception
    canvas = any(
        block.proto.component_name == "patch_canvas" for block in page.get("bidi_component")
    )
    proof = any("largest error against float64" in block.value for block in page.markdown)
    assert canvas == proof
    return canvas


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_drawn(visit: Visit, name: str) -> None:
    page = visit(picture=name)
    assert is_drawn(page)
    assert sentences(page) == []
    assert address(page)["picture"] == name


def test_the_first_page_needs_no_address(visit: Visit) -> None:
    page = visit(side="518")
    assert is_drawn(page)
    assert address(page)["query"] == "class"


def test_a_link_shows_its_view(visit: Visit) -> None:
    link = {
        "picture": "coffee",
        "side": "224",
        "square": "1",
        "model": "dinov2-small",
        "layer": "3",
        "head": "5",
        "query": "15,0",
        "direction": "looked_at",
        "pin": "class",
        "scale": "log",
        "opacity": "0.25",
    }
    page = visit(**link)
    assert is_drawn(page)
    assert sentences(page) == []
    assert address(page) == link


def test_another_size_keeps_the_patch_where_it_was(visit: Visit) -> None:
    page = visit(query="4,6")
    page.selectbox(key="size").set_value(518).run()
    assert is_drawn(page)
    assert address(page)["side"] == "518"
    row, column = map(int, address(page)["query"].split(","))
    assert (row / 25, column / 37) == pytest.approx((4.5 / 11, 6.5 / 16), abs=0.03)


def test_a_square_cuts_the_grid(visit: Visit) -> None:
    page = visit(query="4,15")
    page.toggle(key="square").set_value(True).run()
    assert is_drawn(page)
    assert (address(page)["square"], address(page)["query"]) == ("1", "class")


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("side", "519", "518"),
        ("layer", "99", "11"),
        ("query", "1,2,3", "class"),
        ("scale", "<b>", "shared"),
        ("opacity", "7", "0.7"),
    ],
)
def test_a_bad_value_is_told_once(visit: Visit, name: str, value: str, shown: str) -> None:
    page = visit(**{name: value})
    assert is_drawn(page)
    assert sentences(page) == [en.FRAME["bad_link"].format(name=name)]
    assert address(page)[name] == shown
    assert sentences(page.run()) == []


def test_a_patch_outside_the_grid_is_told(visit: Visit) -> None:
    page = visit(query="400,2")
    assert is_drawn(page)
    assert sentences(page) == [en.FRAME["outside_grid"].format(name="query")]


def test_a_forgotten_upload_is_told_and_a_sample_shown(visit: Visit) -> None:
    page = visit(picture="u-abcdefghijklmnopqrstuvwx")
    assert is_drawn(page)
    assert sentences(page) == [en.PICTURE["forgotten"]]
    assert address(page)["picture"] == "cat"


def test_an_unknown_sample_is_told(visit: Visit) -> None:
    page = visit(picture="dragon")
    assert is_drawn(page)
    assert sentences(page) == [en.PICTURE["unknown"]]


def test_an_upload_is_shown_and_its_link_opens_it_again(visit: Visit) -> None:
    page = upload(visit(query="3,3"), "mine.png", picture())
    assert is_drawn(page)
    name = address(page)["picture"]
    assert name.startswith("u-")
    assert address(page)["query"] == "class"
    assert sentences(visit(picture=name)) == []


def test_visitors_do_not_see_each_other(visit: Visit) -> None:
    mine, other = visit(), visit()
    name = address(upload(mine, "mine.png", picture()))["picture"]
    assert address(other.run())["picture"] == "cat"
    assert name not in str(other.main) + str([b.proto for b in other.get("bidi_component")])
    theirs = address(upload(other, "mine.png", picture()))["picture"]
    assert theirs != name
    assert is_drawn(mine.run())
    assert address(mine)["picture"] == name


@pytest.mark.parametrize(
    "content", [b"", b"no picture at all", picture()[:60], picture(3, 3)], ids=len
)
def test_a_broken_file_is_told_and_the_last_picture_stays(visit: Visit, content: bytes) -> None:
    page = upload(visit(picture="rocket"), "broken.png", content)
    assert is_drawn(page)
    assert len(sentences(page)) == 1
    assert sentences(page)[0].endswith(".")
    assert address(page)["picture"] == "rocket"
    assert sentences(page.run()) == []


def test_a_failed_self_test_draws_no_map(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = "The row sum of fa2 is off by 0.3 at 63 tokens; no map is drawn."
    monkeypatch.setattr(compute, "self_test", lambda: SelfTest(False, sentence, "fa2", 0.3))
    page = visit()
    assert not is_drawn(page)
    assert sentences(page) == [sentence]


def test_a_size_that_does_not_fit_is_refused(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "available_bytes", lambda device: 300_000_000)
    page = visit()
    page.selectbox(key="size").set_value(3108).run()
    assert is_drawn(page)
    assert len(sentences(page)) == 1
    assert "3108 px needs" in sentences(page)[0]
    assert address(page)["side"] == "224"
    page = visit(side="3108")
    assert is_drawn(page)
    assert int(address(page)["side"]) < 3108


@pytest.mark.parametrize(
    "fault",
    [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
    ids=["python", "torch"],
)
def test_after_running_out_of_memory_the_app_goes_on(
    visit: Visit, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    page = visit()
    with monkeypatch.context() as patched:

        def fail(*_: object) -> None:
            raise fault

        patched.setattr(VisionTransformer, "trace", fail)
        page.selectbox(key="size").set_value(518).run()
        assert not is_drawn(page)
        assert sentences(page) == [en.TROUBLE["out_of_memory"]]
    page.selectbox(key="size").set_value(224).run()
    assert is_drawn(page)
    assert len(compute.shared().line) == 0


def test_an_unforeseen_fault_is_one_sentence_and_in_the_log(
    visit: Visit, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(compute, "survey", fail)
    page = visit()
    assert not page.exception
    assert sentences(page) == [en.TROUBLE["unforeseen"]]
    assert "secret detail" in caplog.text


def test_sizes_say_what_they_need(visit: Visit) -> None:
    options = visit().selectbox(key="size").options
    assert len(options) == len(SIDES)
    assert options[1].startswith("518 px · 926 tokens · ")
    measured = visit().selectbox(key="size").options[0]
    assert re.fullmatch(re.escape(options[0]) + r" · \d+\.\d s", measured)


def test_traces_are_kept_and_make_room(visit: Visit) -> None:
    visit()
    traces = compute.shared().traces
    assert (len(traces), traces.nbytes > 0) == (1, True)
    visit(query="1,1")
    assert len(traces) == 1
    compute.make_room(Forecast(1, 0, traces.limit, 0, 0))
    assert len(traces) == 0
