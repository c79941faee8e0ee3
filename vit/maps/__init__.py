"""MAPS: pure functions of a trace, each giving one array on the patch grid."""

from vit.maps.column import column
from vit.maps.row import row

MAPS = {
    "row": row,
    "column": column,
}
