"""The words of the side panel."""

from __future__ import annotations

PANEL = {
    "title": "What this costs",
}
