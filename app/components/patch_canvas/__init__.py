"""The picture, every head and every layer, linked in one component; a click needs no page reload."""

from app.components.patch_canvas.blob import CanvasData
from app.components.patch_canvas.door import latest_selection, patch_canvas
from app.components.patch_canvas.selection import Limits, Selection

__all__ = ["CanvasData", "Limits", "Selection", "latest_selection", "patch_canvas"]
