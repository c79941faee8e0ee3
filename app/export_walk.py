"""A walk as one HTML file that plays without a server and without a network.

It holds the player's own scripts and rules of style and the very bytes that the page Tiles sends to the browser.
"""

from __future__ import annotations

import base64
from html import escape

from app.components.tile_player import PlayerData, modules, style
from app.components.tile_player.blob import pack
from app.origin import Origin, lines
from app.text.export import IMPLEMENTATION, PAGE

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src blob: data:"
)
"""The browser itself refuses whatever the file would fetch."""

THEME = {
    "light": {"text": "#1b232c", "background": "#ffffff", "primary": "#0f6580"},
    "dark": {"text": "#e5e9ee", "background": "#12161b", "primary": "#5bb6d0"},
}
"""As in .streamlit/config.toml; a test holds them together."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"

RULES = """
  body {
    max-width: 1280px;
    margin: 0 auto;
    padding: 20px 16px 32px;
    background: var(--st-background-color);
    color: var(--st-text-color);
    font: 400 16px/1.5 var(--st-font);
  }
  h1 { margin: 0 0 4px; font-size: 1.4rem; }
  p { margin: 0 0 16px; }
  footer { margin-top: 24px; font-size: 0.8125rem; }
  footer p { margin: 0; }
"""

START = """
const text = document.getElementById("walk").textContent;
const bytes = Uint8Array.from(atob(text.trim()), (sign) => sign.charCodeAt(0));
mount(document.getElementById("player"), bytes);
"""


def as_html(data: PlayerData, origin: Origin) -> bytes:
    """The file, in UTF-8. It opens at `data.start_step` and follows `data.followed_row`."""
    title = PAGE["title"].format(implementation=IMPLEMENTATION[data.walk.implementation])
    foot = "".join(f"<p>{escape(line)}</p>" for line in lines(origin, data.walk, data.broken_walk))
    walk = base64.b64encode(pack(data)).decode("ascii")
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{themes()}{RULES}{inline(style())}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<p>{escape(PAGE["lead"])}</p>
<noscript><p>{escape(PAGE["no_script"])}</p></noscript>
<main id="player"></main>
<footer>{foot}</footer>
<script type="text/plain" id="walk">{walk}</script>
<script type="module">
{inline(modules())}
{START}</script>
</body>
</html>
"""
    return page.encode()


def themes() -> str:
    """The player's colours, by what the visitor's system asks for."""
    light, dark = (variables(THEME[mode]) for mode in ("light", "dark"))
    return (
        f":root {{ color-scheme: light dark; --st-font: {FONT}; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )


def variables(colours: dict[str, str]) -> str:
    return " ".join(f"--st-{name}-color: {colour};" for name, colour in colours.items())


def inline(text: str) -> str:
    """A script or a sheet of style in which nothing can end its element."""
    return text.replace("</", "<\\/")
