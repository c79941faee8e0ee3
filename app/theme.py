"""Sizes, and the few rules of style that Streamlit has no argument for."""

from __future__ import annotations

from vit.colours import PROBABILITY

FRAME, PAGE, SIDE, COST_BODY = "frame", "page", "side", "cost-body"
"""Keys of the containers that the rules below place."""
SIDE_WIDTH_PX, GAP_PX = 256, 20
PAGE_WIDTH_PX = 1280 + SIDE_WIDTH_PX + GAP_PX
NARROW_PX = 1200
"""Below this the panel folds under the page."""

ACCENT_LIGHT, ACCENT_DARK = "#0f6580", "#5bb6d0"
PAGE_LIGHT, PAGE_DARK = "#ffffff", "#12161b"
"""The theme's primary and background colours; Streamlit hands them to components only, not to HTML."""
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
    --page: light-dark({PAGE_LIGHT}, {PAGE_DARK});
    --accent: light-dark({ACCENT_LIGHT}, {ACCENT_DARK});
    --quiet: color-mix(in srgb, currentColor 76%, transparent);
    --edge: color-mix(in srgb, currentColor 22%, transparent);
    --faint: color-mix(in srgb, currentColor 9%, transparent);
  }}
  [data-testid="stMainBlockContainer"] {{
    max-width: {PAGE_WIDTH_PX}px;
    padding: 3.5rem 1.25rem 2rem;
  }}
  [data-testid="stMainBlockContainer"] h1 {{
    font-size: 1.4rem;
    padding: 0;
  }}
  /* A bar, a box or a sentence: what stands below keeps its place. */
  .st-key-sweep-status {{
    min-height: 3.5rem;
    justify-content: center;
  }}
  .st-key-walk-link a {{
    border: 1px solid var(--edge);
  }}
  .st-key-walk-link a :is(p, span) {{
    color: var(--accent);
  }}
  /* Four tile sizes in a row, on a phone too. */
  [class*="st-key-tiles-size-"] button {{
    padding-inline: 0.2rem;
  }}
  /* What a phone cannot show of a choice ends in dots; the open list shows all of it. */
  [data-testid="stSelectbox"] input {{
    text-overflow: ellipsis;
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

FRAME_CSS = f"""
<style>
  /* The frame: the page, and what it costs at its left; under it where there is no room. */
  .st-key-{FRAME} {{
    display: grid;
    grid-template-columns: minmax(0, 1fr);
    gap: 1.5rem {GAP_PX}px;
  }}
  .st-key-{SIDE} {{
    gap: 0.75rem;
    font-variant-numeric: tabular-nums;
  }}
  .st-key-{SIDE} :is(h2, h3, h4, p, ul, li) {{
    margin: 0;
    padding: 0;
    list-style: none;
    font-size: 0.8125rem;
    line-height: 1.35;
  }}
  .st-key-{SIDE} h2 {{
    font-size: 1rem;
  }}
  .st-key-{SIDE} h3 {{
    font-size: 0.875rem;
  }}
  .st-key-{SIDE} :is(h2, h3, h4) {{
    font-weight: 600;
  }}
  .st-key-{SIDE} details > summary {{
    cursor: pointer;
  }}
  @media (max-width: {NARROW_PX - 0.02}px) {{
    .st-key-{SIDE} h2 {{
      display: none;
    }}
    .st-key-{SIDE} {{
      border-top: 1px solid var(--edge);
      padding-top: 0.75rem;
    }}
    .cost-fold summary {{
      font-size: 1rem;
      font-weight: 600;
    }}
    .st-key-{SIDE}:not(:has(.cost-fold[open])) .st-key-{COST_BODY} {{
      display: none;
    }}
  }}
  @media (min-width: {NARROW_PX}px) {{
    .cost-fold {{
      display: none;
    }}
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
</style>
"""

COST_CSS = """
<style>
  .cost-quiet, .cost-missing { color: var(--quiet); }
  .cost-row ul { display: grid; gap: 0.3rem; padding: 0.3rem 0 0.35rem; }
  .cost-row li {
    position: relative;
    display: grid;
    grid-template-columns: 1fr auto 4.6rem;
    column-gap: 0.4rem;
    align-items: baseline;
  }
  .cost-row p + .cost-quiet { margin-top: 0.4rem; }
  .cost-name { overflow-wrap: anywhere; }
  .cost-value { text-align: right; }
  .cost-value:not(:has(+ .cost-tag)) { grid-column: 2 / -1; color: var(--quiet); }
  .cost-tag { justify-self: end; font-size: 0.75rem; }
  .cost-tag summary {
    cursor: pointer;
    list-style: none;
    color: var(--accent);
    text-decoration: underline dotted;
    text-underline-offset: 0.2em;
  }
  .cost-tag summary::-webkit-details-marker { display: none; }
  /* Over what follows it, so that nothing moves when it opens. */
  .cost-story {
    position: absolute;
    z-index: 2;
    inset: calc(100% + 2px) 0 auto;
    display: grid;
    gap: 0.25rem;
    padding: 0.5rem 0.6rem;
    border: 1px solid var(--edge);
    border-radius: 0.25rem;
    background: var(--page);
    box-shadow: 0 2px 8px rgb(0 0 0 / 25%);
  }
  .cost-bar, .cost-missing { grid-column: 1 / -1; }
  .cost-bar { height: 8px; background: var(--faint); }
  .cost-bar span { display: block; height: 100%; }
  .cost-stores { background: color-mix(in srgb, currentColor 62%, transparent); }
  .cost-spares { background: var(--accent); }
  .cost-later { visibility: hidden; }
  .cost-small { font-size: 0.75rem; }
  .cost-small .cost-bar { height: 5px; }
  .cost-live { min-height: 2.9rem; }
  .cost-work progress { display: block; width: 100%; height: 6px; accent-color: var(--accent); }
  .cost-scale {
    position: relative;
    height: 4px;
    margin: 1.5rem 0 1.4rem;
    background: var(--faint);
    font-size: 0.75rem;
  }
  .cost-scale span { position: absolute; white-space: nowrap; }
  .cost-fits { inset: 0 auto 0 0; background: var(--accent); border-right: 2px solid; }
  .cost-here { top: -5px; width: 2px; height: 14px; margin-left: -1px; background: currentColor; }
  .cost-above { bottom: 9px; font-weight: 600; }
  .cost-below { top: 8px; color: var(--quiet); }
</style>
"""
