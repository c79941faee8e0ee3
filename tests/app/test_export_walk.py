"""The page that plays offline, as text, and the buttons; it is played in tests/browser."""

from __future__ import annotations

import base64
import re
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from app import export_walk
from app.components.tile_player.blob import pack
from app.controls.save_walk import origin_of, versions
from app.origin import Origin
from app.state import State
from app.text.export import SAVE
from tests.browser.player_cases import CASES, player_data
from tests.test_house import THEME

ORIGIN = Origin("Cat", "DINOv2 small", 11, 2, "torch 2, Triton 3", "2026-11-30")
SMALL = CASES["small"]


def page_of(**changes) -> str:
    data = replace(player_data(SMALL, step=2, row=3), **changes)
    return export_walk.as_html(data, ORIGIN).decode()


def test_it_holds_the_very_bytes_that_the_page_sends():
    found = re.search(r'<script type="text/plain" id="walk">([^<]*)</script>', page_of())
    assert found is not None
    assert base64.b64decode(found[1]) == pack(player_data(SMALL, step=2, row=3))


def test_nothing_is_fetched_and_the_browser_is_told_so():
    page = page_of()
    assert f'content="{export_walk.POLICY}"' in page
    assert export_walk.POLICY.startswith("default-src 'none'")
    without_bytes = re.sub(r'id="walk">[^<]*<', "", page)
    without_bytes = without_bytes.replace('"http://www.w3.org/2000/svg"', "")  # a name, not a place
    assert not re.findall(r"(?:src|href)=|https?://|@import|\burl\(", without_bytes)


def test_no_script_or_rule_can_end_its_element():
    page = page_of(caption="</script><b>")
    assert page.count("</script>") == 2  # the walk's and the player's
    assert page.count("</style>") == 1
    assert "<b>" not in page


def test_where_the_numbers_come_from_stands_below_and_is_escaped():
    origin = replace(ORIGIN, picture="<i>mine</i>")
    page = export_walk.as_html(player_data(SMALL), origin).decode()
    foot = page[page.index("<footer>") : page.index("</footer>")]
    assert "&lt;i&gt;mine&lt;/i&gt;" in foot
    for part in ("DINOv2 small", "layer 11, head 2", "FlashAttention-2", "32 by 32", "2026-11-30"):
        assert part in foot


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_its_colours_are_those_of_the_app(mode):
    names = {"text": "textColor", "background": "backgroundColor", "primary": "primaryColor"}
    assert {name: THEME[mode][key] for name, key in names.items()} == export_walk.THEME[mode]


def the_buttons() -> None:
    """What AppTest runs."""
    from app.controls.save_walk import save_walk_choice
    from tests.app.test_export_walk import ORIGIN, SMALL
    from tests.browser.player_cases import player_data

    save_walk_choice(player_data(SMALL, step=2, row=3), ORIGIN)


def test_there_is_a_button_for_each_file():
    page = AppTest.from_function(the_buttons, default_timeout=60).run()
    assert not page.exception
    labels = [button.proto.label for button in page.get("download_button")]
    assert labels == [SAVE[kind] for kind in ("html", "gif", "webp", "png")]


def test_the_origin_of_what_is_on_the_screen():
    found = origin_of(State(picture="coffee", layer=3, head=1))
    assert (found.picture, found.model) == ("Coffee", "DINOv2 ViT-S/14")
    assert (found.layer, found.head) == (3, 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found.when)
    assert found.versions == versions()
    assert re.match(r"torch \d", found.versions)
    assert origin_of(State(picture="u-0123456789abcdef")).picture == "Yours"
