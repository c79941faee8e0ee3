"""One query tile walked through the real kernels, tile by tile, with every number on the way.

Importing this needs neither Triton nor a GPU.
"""

from kernels.trace.broken import BROKEN, Broken
from kernels.trace.on_chip import SourceLine, source_line, sram_bytes
from kernels.trace.steps import TITLES, Step, TraceError, Walk
from kernels.trace.walker import walk

__all__ = [
    "BROKEN",
    "TITLES",
    "Broken",
    "SourceLine",
    "Step",
    "TraceError",
    "Walk",
    "source_line",
    "sram_bytes",
    "walk",
]
