"""Sizes, and the few rules of style that Streamlit has no argument for."""

from __future__ import annotations

from vit.colours import PROBABILITY

FRAME, PAGE, SIDE = "frame", "page", "side"
"""Keys of the containers that the rules below place."""
SIDE_WIDTH_PX, GAP_PX = 256, 20
PAGE_WIDTH_PX = 1280 + SIDE_WIDTH_PX + GAP_PX
NARROW_PX = 1200
"""Below this the panel folds under the page."""

ACCENT_LIGHT, ACCENT_DARK = "#0f6580", "#5bb6d0"
"""The theme's primary colours; Streamlit hands its theme to components only, not to HTML."""
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
  .stApp {{
    --accent: light-dark({ACCENT_LIGHT}, {ACCENT_DARK});
    --quiet: color-mix(in srgb, currentColor 76%, transparent);
    --edge: color-mix(in srgb, currentColor 22%, transparent);
    --faint: color-mix(in srgb, currentColor 9%, transparent);
  }}
  [data-testid="stMainBlockContainer"] {{
    max-width: {PAGE_WIDTH_PX}px;
    padding: 3.5rem 1.25rem 2rem;
  }}
  /* The frame: the page, and what it costs at its left; under it where there is no room. */
  .st-key-{FRAME} {{
    display: grid;
    grid-template-columns: minmax(0, 1fr);
    gap: 1.5rem {GAP_PX}px;
  }}
  .st-key-{SIDE} {{
    gap: 0.75rem;
  }}
  @media (min-width: {NARROW_PX}px) {{
    .st-key-{FRAME} {{
      grid-template-columns: {SIDE_WIDTH_PX}px minmax(0, 1fr);
      align-items: start;
    }}
    .st-key-{FRAME} > :has(> .st-key-{SIDE}) {{
      order: -1;
      position: sticky;
      top: 3.5rem;
      max-height: calc(100vh - 4rem);
      overflow: hidden auto;
      scrollbar-width: thin;
    }}
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
