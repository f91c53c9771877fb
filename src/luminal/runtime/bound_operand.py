"""Where an operand of a launch lies, with the numbers of one binding of dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from luminal.runtime.driver import DevicePointer

Table: TypeAlias = Mapping[int, DevicePointer]
"""Where the entries of a Program's table lie."""


class BoundOperand(NamedTuple):
    """An Operand with the numbers that its Expressions have in this binding."""

    entry: int
    depth: int
    offset: int
    modulus: int
    stride: int
    start: int

    def at(self, table: Table, trips: Sequence[int]) -> DevicePointer:
        """The place of the operand in these trips of the Loops around it, the outermost first."""
        # One rule serves weights of a layer (an entry for each trip), values that take turns
        # (modulus 2) and slices of one tensor (a stride).
        trip = trips[self.depth - 1] if self.depth else 0
        block, offset = table[self.entry + (trip + self.offset) % self.modulus]
        return DevicePointer(block, offset + self.start + trip * self.stride)
