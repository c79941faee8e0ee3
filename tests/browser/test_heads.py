"""The page Heads in a real browser: bring a picture, click it, keep the view, open the link again."""

from __future__ import annotations

import io
import statistics
import sys
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from PIL import Image

from app.memory import SIDES
from app.samples import SAMPLES
from app.text import en

pytestmark = [pytest.mark.browser, pytest.mark.slow]

UPLOAD = '[class*="st-key-upload-"] input[type="file"]'
CANVAS = "[data-drawn-seq]"
PICTURE = f"{CANVAS} canvas[data-rows]"
IDLE = '.stApp[data-test-script-state="notRunning"]'
FIRST_TRACE_MS = 120_000
TEXT_FITS = """(box, text) => {
    const style = getComputedStyle(box);
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = style.font;
    const room = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    return pen.measureText(text).width <= room;
}"""


@pytest.fixture
def visit(browser, streamlit_server) -> Callable:
    """Open the page as a new visitor, wait until it is drawn, and close all at the end."""
    contexts = []

    def open_page(query: str = "side=224", width: int = 1440):
        context = browser.new_context(viewport={"width": width, "height": 900})
        contexts.append(context)
        page = context.new_page()
        page.goto(f"{streamlit_server('app/main.py')}/?{query}")
        settle(page)
        return page

    yield open_page
    for context in contexts:
        context.close()


def settle(page) -> None:
    """Wait until the server has answered and the canvas shows the answer."""
    page.wait_for_selector(f'{CANVAS}[data-waiting="false"]', timeout=FIRST_TRACE_MS)
    page.wait_for_selector('[class*="st-key-save-npz"]', state="attached", timeout=FIRST_TRACE_MS)
    page.wait_for_selector(IDLE, state="attached", timeout=FIRST_TRACE_MS)


def address(page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def upload(page, content: bytes, name: str = "mine.png") -> None:
    """Give a file to the upload field and wait for its picture."""
    before = address(page)["picture"]
    page.set_input_files(UPLOAD, {"name": name, "mimeType": "image/png", "buffer": content})
    page.wait_for_function("before => !location.search.includes(before)", arg=f"picture={before}&")
    settle(page)


def sample(name: str) -> Image.Image:
    with Image.open(SAMPLES[name].path) as image:
        return image.convert("RGB")


def png(image: Image.Image, orientation: int = 1) -> bytes:
    exif = Image.Exif()
    exif[274] = orientation
    file = io.BytesIO()
    image.save(file, "PNG", exif=exif)
    return file.getvalue()


def numbers(page) -> np.ndarray:
    """The maps that the page offers for download."""
    with page.expect_download() as started:
        page.locator(".st-key-save-npz button").filter(visible=True).click()
    with np.load(started.value.path(), allow_pickle=False) as found:
        return found["map"]


def drawn(page) -> dict[str, str]:
    """What the canvas says that it shows."""
    return page.eval_on_selector(CANVAS, "root => ({...root.dataset})")


def click_patch(page, row: int, column: int) -> None:
    """Click a patch's centre on the picture and wait for its maps."""
    canvas = page.locator(PICTURE)
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    rows, columns = (int(canvas.get_attribute(f"data-{name}")) for name in ("rows", "columns"))
    x, y = (column + 0.5) * box["width"] / columns, (row + 0.5) * box["height"] / rows
    canvas.click(position={"x": x, "y": y})
    page.wait_for_selector(f'{CANVAS}[data-query="{row},{column}"][data-waiting="false"]')
    page.wait_for_selector(IDLE, state="attached")


@pytest.mark.parametrize("name", ["astronaut", "rocket"])
def test_the_centre_and_the_corners_are_where_they_were_clicked(visit, name: str) -> None:
    page = visit("side=518")
    upload(page, png(sample(name)))
    canvas = page.locator(PICTURE)
    rows, columns = (int(canvas.get_attribute(f"data-{part}")) for part in ("rows", "columns"))
    assert (rows, columns) == {"astronaut": (37, 37), "rocket": (25, 37)}[name]
    corners = [(row, column) for row in (0, rows - 1) for column in (0, columns - 1)]
    for row, column in [(rows // 2, columns // 2), *corners]:
        click_patch(page, row, column)
        assert address(page)["query"] == f"{row},{column}"
        text = page.locator(CANVAS).inner_text()
        assert f"row {row} · column {column}" in text


def turned(image: Image.Image, orientation: int) -> Image.Image:
    """The picture as a camera held that way stores it."""
    back = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    return image if orientation == 1 else image.transpose(back[orientation])


def test_all_eight_orientations_give_the_same_maps(visit) -> None:
    page = visit("side=224")
    image = sample("rocket")
    found = []
    for orientation in range(1, 9):
        upload(page, png(turned(image, orientation), orientation), f"{orientation}.png")
        found.append(numbers(page))
    assert found[0].shape == (6, 11, 16)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_the_maps_change_with_the_picture(visit) -> None:
    page = visit("side=224")
    first = numbers(page)
    upload(page, png(sample("cat").transpose(Image.Transpose.FLIP_LEFT_RIGHT)))
    assert np.abs(numbers(page) - first).max() > 1e-4


@pytest.mark.parametrize("own", [False, True], ids=["sample", "upload"])
def test_a_reload_and_a_fresh_browser_show_the_same_view(visit, own: bool) -> None:
    page = visit("picture=coffee&side=224&layer=8&head=4&direction=looked_at&scale=log&pin=class")
    if own:
        upload(page, png(sample("astronaut")))
    click_patch(page, 5, 7)
    before, link, maps = drawn(page), page.url, numbers(page)
    assert address(page)["query"] == "5,7"
    page.reload()
    settle(page)
    fresh = visit(urlsplit(link).query)
    for again in (page, fresh):
        assert again.url == link
        after = drawn(again)
        for name in ("query", "direction", "layer", "head", "scale", "picture"):
            assert after[name] == before[name]
        np.testing.assert_array_equal(numbers(again), maps)


def test_back_goes_to_the_view_before(visit) -> None:
    page = visit("side=224")
    click_patch(page, 2, 3)
    click_patch(page, 6, 9)
    page.go_back()
    page.wait_for_selector(f'{CANVAS}[data-query="2,3"][data-waiting="false"]')


@pytest.mark.parametrize("content", [b"", b"no picture", png(Image.new("RGB", (90, 90)))[:70]])
def test_a_broken_file_gives_its_sentence_and_the_picture_stays(visit, content: bytes) -> None:
    page = visit("picture=rocket&side=224")
    before = drawn(page)["picture"]
    page.set_input_files(UPLOAD, {"name": "a.png", "mimeType": "image/png", "buffer": content})
    alert = page.get_by_test_id("stAlert")
    alert.wait_for()
    assert "Traceback" not in page.content()
    assert len(alert.all_inner_texts()) == 1
    settle(page)
    assert drawn(page)["picture"] == before


@pytest.mark.parametrize("event", ["paste", "drop"])
def test_a_picture_can_be_pasted_and_dropped_anywhere(visit, event: str) -> None:
    page = visit("side=224")
    page.evaluate(
        """([type, bytes]) => {
            const held = new DataTransfer();
            held.items.add(new File([new Uint8Array(bytes)], "image.png", {type: "image/png"}));
            const given = type === "paste" ? {clipboardData: held} : {dataTransfer: held};
            const Kind = type === "paste" ? ClipboardEvent : DragEvent;
            document.body.dispatchEvent(new Kind(type, {bubbles: true, cancelable: true, ...given}));
        }""",
        [event, list(png(sample("astronaut").resize((64, 64))))],
    )
    page.wait_for_function("() => location.search.includes('picture=u-')")
    settle(page)
    assert page.locator('button[data-picture^="u-"][aria-pressed="true"]').count() == 1


def test_who_waits_is_told_and_who_leaves_gives_up_the_turn(
    visit, browser, streamlit_server
) -> None:
    slow = browser.new_context()
    page = slow.new_page()
    page.goto(f"{streamlit_server('app/main.py')}/?picture=rocket&side=2072")
    page.get_by_text("of 12 layers done · attention by").wait_for(timeout=FIRST_TRACE_MS)
    other = browser.new_context()
    waiting = other.new_page()
    waiting.goto(f"{streamlit_server('app/main.py')}/?picture=astronaut&side=518&square=1")
    waiting.get_by_text(en.WORK["one_ahead"]).wait_for()
    slow.close()
    # All 12 layers of the first visitor would take minutes on a CPU.
    waiting.wait_for_selector(f'{CANVAS}[data-waiting="false"]', timeout=60_000)
    other.close()


def test_a_sample_is_one_click(visit) -> None:
    page = visit("side=224")
    page.locator('button[data-picture="rocket"]').click()
    page.wait_for_function("() => location.search.includes('picture=rocket')")
    settle(page)
    assert page.locator('button[data-picture="rocket"]').get_attribute("aria-pressed") == "true"


def test_the_camera_starts_only_when_asked(visit) -> None:
    page = visit("side=224")
    assert page.get_by_test_id("stCameraInput").count() == 0
    page.get_by_text(en.PICTURE["camera"], exact=True).click()
    page.get_by_test_id("stCameraInput").wait_for()


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_wider_than_the_window(visit, width: int) -> None:
    page = visit("side=224", width=width)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    block = page.get_by_test_id("stMainBlockContainer")
    assert block.evaluate("block => block.scrollWidth <= block.clientWidth")


@pytest.mark.parametrize("width", [390, 1440])
def test_a_picture_of_ones_own_fits_into_the_row_of_pictures(visit, width: int) -> None:
    page = visit("side=224", width=width)
    upload(page, png(sample("coffee")))
    thumbnails = page.locator("button[data-picture]")
    assert thumbnails.count() == 5
    assert len({thumbnails.nth(i).bounding_box()["y"] for i in range(5)}) == 1


def test_a_phone_shows_the_memory_of_every_size_whole(visit) -> None:
    """The box is an input, which cannot wrap; only a time, once measured, may end in dots."""
    page = visit("side=224", width=390)
    box = page.locator(".st-key-size input")
    box.click()
    options = page.get_by_role("option").all_inner_texts()
    assert len(options) == len(SIDES)
    for option in options:
        shown = " · ".join(option.split(" · ")[:3])
        assert box.evaluate(TEXT_FITS, shown), shown
    assert not box.evaluate(TEXT_FITS, 2 * shown), "the measure can fail"


def test_a_picture_of_ones_own_leaves_the_choices_in_one_row(visit) -> None:
    page = visit("side=518")
    upload(page, png(sample("coffee")))
    boxes = page.get_by_test_id("stSelectbox")
    assert boxes.count() == 2
    size, model = (boxes.nth(i).bounding_box() for i in range(2))
    assert abs(size["y"] - model["y"]) < 20, "size and model stand side by side"


def test_the_time_from_click_to_redrawn_canvas_is_recorded(visit, capsys) -> None:
    page = visit("side=518")
    click_patch(page, 3, 3)  # warm
    times_ms = []
    for place in range(5, 15):
        click_patch(page, place, 2 * place)
        times_ms.append(float(drawn(page)["redrawMs"]))
    with capsys.disabled():
        middle = statistics.median(times_ms)
        sys.stdout.write(f"\nclick to redrawn canvas, 518 px: median {middle:.0f} ms {times_ms}\n")
    assert len(times_ms) == 10
