"""A kernel's walk over the keys of one query tile, step by step, on the visitor's own picture."""

from app.components.tile_player.data import OnChip, PlayerData, PlayerEvent, StoryLines
from app.components.tile_player.door import modules, style, tile_player
from app.components.tile_player.story import story_lines

__all__ = [
    "OnChip",
    "PlayerData",
    "PlayerEvent",
    "StoryLines",
    "modules",
    "story_lines",
    "style",
    "tile_player",
]
