"""Sizes, and the few rules of style that Streamlit has no argument for."""

from __future__ import annotations

from app.figures.colours import PROBABILITY

PAGE_WIDTH_PX = 1280
THUMBNAIL_HEIGHT_PX = 56

INK = (28, 27, 34)
PAPER = (255, 255, 255)
QUIET = (92, 90, 102)
MARK = (0, 200, 255)
"""Colours of downloaded pictures, which are light in every theme. MARK is on no map."""

MAP_COLOURS = PROBABILITY

CSS = f"""
<style>
  [data-testid="stMainBlockContainer"] {{
    max-width: {PAGE_WIDTH_PX}px;
    padding: 3.5rem 1.25rem 2rem;
  }}
  /* The upload field stands in a line with other choices, so it is as low as they are. */
  [class*="st-key-upload"] section {{
    padding: 0.25rem 0.5rem;
    min-height: 0;
  }}
</style>
"""
