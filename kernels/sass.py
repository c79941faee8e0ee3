"""What a listing of NVIDIA machine code says about asynchronous matrix products.

A wgmma reads its registers after it was issued. A compiler that writes one of them before the wait gives
numbers that are rarely and slightly wrong, which no test of results finds for certain; the listing shows it.
"""

from __future__ import annotations

import re

LINE = re.compile(r"/\*([0-9a-f]{4,5})\*/\s+(?:@!?\w+\s+)?([A-Z][A-Za-z0-9_.]*)\s*([^;]*);")
"""Address, opcode with its modifiers, operands: /*0120*/  @!P0 HGMMA.64x64x16.F32 R24, R120, ... ;"""

NO_RESULT = re.compile(r"ST|BAR|SYNCS|R2UR|ISETP|FSETP|PLOP3|UTMA|VOTE|WARPSYNC|RED|BRA")
"""Opcodes that may begin their operands with a register and do not write it."""

RESULT = re.compile(r"(?:!?U?P[T0-9]+, )*R(\d+)")
WORDS = {"64": 2, "WIDE": 2, "128": 4}
"""Modifiers of opcodes whose result takes several registers: LDS.128, IMAD.WIDE."""


def written_in_flight(listing: str) -> list[str]:
    """The instructions that write a register of a product which nobody has waited for yet.

    Follows the listing from top to bottom, as a kernel without jumps over its waits is laid out.
    """
    groups: list[set[int]] = []  # registers of the products in flight, one set for each group
    begun: set[int] = set()  # and of the group that is not closed yet
    found = []
    for address, opcode, operands in LINE.findall(listing):
        if re.match("[HQ]GMMA", opcode):
            begun |= registers_of(opcode, operands)
            if "gsb0" in operands:
                groups, begun = [*groups, begun], set()
        elif opcode.startswith("WARPGROUP.DEPBAR"):
            left = int(operands.rpartition("0x")[2], 16)
            groups = groups[len(groups) - left :] if left else []
        elif written(opcode, operands) & begun.union(*groups):
            found.append(f"{address} {opcode} {operands.strip()}")
    return found


def registers_of(opcode: str, operands: str) -> set[int]:
    """The registers that an HGMMA.64xNx16 (or QGMMA, of 8 bits) reads and writes: N / 2 sums, and 4 where its left side lies in some."""
    sums, left = operands.split(",")[:2]
    first = int(sums.strip().removeprefix("R"))
    width = int(opcode.split(".")[1].split("x")[1])
    registers = set(range(first, first + width // 2))
    in_registers = re.fullmatch(r"\s*R(\d+)", left)
    if in_registers:
        registers |= {int(in_registers[1]) + i for i in range(4)}
    return registers


def written(opcode: str, operands: str) -> set[int]:
    """The registers that an instruction writes."""
    result = RESULT.match(operands)
    if result is None or NO_RESULT.match(opcode):
        return set()
    first = int(result[1])
    words = max(WORDS.get(modifier, 1) for modifier in opcode.split("."))
    return set(range(first, first + words))
