"""One open playground of the patch canvas, and how a test reads it."""

from __future__ import annotations

import json
import re

from tests.browser.canvas_cases import Case


class Canvas:
    """What is clicked, drawn and reported on one page."""

    def __init__(self, page, case: Case) -> None:
        self.page = page
        self.case = case
        self.root = page.locator(".patch-canvas")
        self.picture = page.locator(".picture .patches")

    def wait(self, **marks: str | int) -> None:
        """Until the root element carries these marks and no answer is owed."""
        marks = {"waiting": "false", **marks}
        self.page.wait_for_function(
            """marks => {
                const walk = root => root.querySelector('.patch-canvas') ||
                    [...root.querySelectorAll('*')].map(e => e.shadowRoot && walk(e.shadowRoot)).find(Boolean);
                const root = walk(document);
                return root && Object.entries(marks).every(([k, v]) => root.dataset[k] === String(v));
            }""",
            arg=marks,
            timeout=15000,
        )

    def python(self, **expected: object) -> dict:
        """The selection that Python printed, once it holds what is expected."""
        parts = [json.dumps({key: value})[1:-1] for key, value in expected.items()]
        pattern = "".join(f"(?=.*{re.escape(part)})" for part in parts)
        line = self.page.get_by_text(re.compile(f"^python {pattern}"))
        line.wait_for(timeout=15000)
        return json.loads(line.inner_text().removeprefix("python "))

    def centre(self, row: int, column: int) -> tuple[float, float]:
        """Where a patch's centre lies in the picture's canvas, in CSS pixels, from the case alone."""
        bounds = self.picture.bounding_box()
        width, height = self.case.size
        left, top, right, bottom = self.case.box or (0, 0, width, height)
        x = left + (column + 0.5) * (right - left) / self.case.columns
        y = top + (row + 0.5) * (bottom - top) / self.case.rows
        return x / width * bounds["width"], y / height * bounds["height"]

    def click(self, row: int, column: int) -> None:
        x, y = self.centre(row, column)
        self.picture.click(position={"x": x, "y": y})

    def pixel(self, selector: str, x: float, y: float) -> tuple[int, int, int]:
        """The colour of a canvas at fractions (0 to 1) of its width and height."""
        pixel = self.page.locator(selector).evaluate(
            """(canvas, [x, y]) => [...canvas.getContext('2d').getImageData(
                Math.floor(x * canvas.width), Math.floor(y * canvas.height), 1, 1).data]""",
            [x, y],
        )
        return tuple(pixel[:3])

    def map_pixel(self, head: int, patch: int) -> tuple[int, int, int]:
        """The colour at the centre of a patch of a small map."""
        row, column = divmod(patch, self.case.columns)
        x, y = (column + 0.5) / self.case.columns, (row + 0.5) / self.case.rows
        return self.pixel(f".head[data-head='{head}'] canvas", x, y)

    def overlay_pixel(self, patch: int, name: str = "a") -> tuple[int, int, int]:
        """The colour at the centre of a patch of the large map over the whole picture."""
        row, column = divmod(patch, self.case.columns)
        bounds = self.picture.bounding_box()
        x, y = self.centre(row, column)
        return self.pixel(f".overlay[data-map='{name}']", x / bounds["width"], y / bounds["height"])

    def set_opacity(self, percent: int) -> None:
        self.page.locator(".opacity input").fill(str(percent))
