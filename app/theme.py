"""Sizes, and the few rules of style that Streamlit has no argument for."""

from __future__ import annotations

from vit.colours import PROBABILITY

PAGE_WIDTH_PX = 1280
THUMBNAIL_SIDE_PX = 220
"""Twice the widest that the line of pictures shows, for sharp screens."""

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
  [data-testid="stMainBlockContainer"] h1 {{
    font-size: 1.4rem;
    padding: 0;
  }}
  /* The upload field stands in a line with other choices, so it is as low as they are; what it
     takes is told in its help, not by a list of endings. */
  [class*="st-key-upload-"] section {{
    padding: 0;
    min-height: 0;
    border-style: dashed;
  }}
  [class*="st-key-upload-"] section > span,
  [class*="st-key-upload-"] section button {{
    width: 100%;
    border: none;
    background: none;
  }}
  [class*="st-key-upload-"] [data-testid="stFileUploaderDropzoneInstructions"] {{
    display: none;
  }}
</style>
"""
