"""Layouts: how the elements of a tensor lie in memory."""

from __future__ import annotations

import re
from collections.abc import Sequence

from luminal.base.dots import Dot
from luminal.base.records import dataclass
from luminal.memory.alignment import ALIGNMENT
from luminal.shape.expression import Expression, ceil_div, const


@dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor's elements lie in memory.

    `order` lists the dimensions from outermost to innermost (None: row-major). `blocks` splits
    dimensions, innermost last: `((1, 32),)` stores panels of 32 consecutive positions of dimension
    1 together, the panel number taking the dimension's own place. The last panel is padded.
    """

    order: tuple[int, ...] | None = None
    blocks: tuple[tuple[int, int], ...] = ()
    padding: int = 0  # elements after each innermost row
    alignment: int = ALIGNMENT  # bytes

    @property
    def neighbours(self) -> int:
        """How many neighbours panels keep together, which a dot multiplies: a block in a block."""
        return self.blocks[-1][1] if len(self.blocks) > 1 else 1

    def _extents(self, shape: Sequence[Expression]) -> list[tuple[int, Expression]]:
        """(dimension, extent) of each storage axis, outermost first; blocks come last."""
        order = self.order if self.order is not None else tuple(range(len(shape)))
        block = dict(self.blocks)
        outer = [
            (d, ceil_div(shape[d], const(block[d])) if d in block else shape[d]) for d in order
        ]
        return outer + [(d, const(n)) for d, n in self.blocks]

    def size(self, shape: Sequence[Expression]) -> Expression:
        """How many elements of storage a tensor of this shape takes."""
        total = const(1)
        for position, (_, extent) in enumerate(reversed(self._extents(shape))):
            total = total * (extent + self.padding if position == 0 else extent)
        return total

    def offset(self, index: Sequence[Expression], shape: Sequence[Expression]) -> Expression:
        """The element of storage at `index` (one Expression per dimension)."""
        block = dict(self.blocks)
        outer = len(shape)
        total, stride = const(0), const(1)
        for position, (d, extent) in reversed([*enumerate(self._extents(shape))]):
            digit = index[d]
            if d in block:
                # A dimension in blocks has two places: the panel's, and the one within it.
                digit = digit // block[d] if position < outer else digit % block[d]
            total = total + digit * stride
            innermost = position == outer + len(block) - 1
            stride = stride * (extent + self.padding if innermost else extent)
        return total

    def __str__(self) -> str:
        """`row`, or what differs from it: `order(1,0) panel(1:32) pad(8) align(4)`."""
        words = [f"panel({d}:{n})" for d, n in self.blocks]
        if self.order is not None:
            words.insert(0, f"order({','.join(map(str, self.order))})")
        if self.padding:
            words.append(f"pad({self.padding})")
        if self.alignment != ALIGNMENT:
            words.append(f"align({self.alignment})")
        return " ".join(words) or "row"

    @classmethod
    def parse(cls, text: str) -> Layout:
        """The layout of a text that `str` gave. Raises ValueError for another text."""
        order, blocks, padding, alignment = None, [], 0, ALIGNMENT
        for word in text.split():
            name, numbers = word.partition("(")[0], [int(n) for n in re.findall(r"\d+", word)]
            match name, numbers:
                case "row", []:
                    pass
                case "order", _:
                    order = tuple(numbers)
                case "panel", [dimension, extent]:
                    blocks.append((dimension, extent))
                case "pad", [padding]:
                    pass
                case "align", [alignment]:
                    pass
                case _:
                    raise ValueError(f"{word!r} is no part of a layout")
        return cls(order, tuple(blocks), padding, alignment)


ROW_MAJOR = Layout()


@dataclass(frozen=True, slots=True)
class Panels:
    """The panels in which a backend wants weights (`selection/layouts.py`), and when they are
    worth a copy. A row of a panel is walked in registers of `register_bits`.
    """

    register_bits: int
    registers: int  # of a panel's row: as wide as a register tile
    rows: int  # results to an element of a weight: fewer wait for memory, not for arithmetic
    many: int  # results to an element that pay for packing neighbours anew in every run
    smallest: int  # elements of a weight: below, the copy costs more compile time than it saves
    far_bytes: int  # of a weight that leaves the caches: turned, not even a single result walks it
    lines: int  # of memory that the nearest cache holds
    full: float  # share of the lanes in use: below, panels along another axis pay
    dots: tuple[Dot, ...]  # whose factors may lie in neighbours along the sum

    def lanes(self, dtype_size: int) -> int:
        """Elements of `dtype_size` bytes in a register."""
        return max(1, self.register_bits // (8 * dtype_size))


def filled(positions: int, size: int) -> float:
    """The share of the lanes at work where positions are walked `size` at a time."""
    return positions / (-(-positions // size) * size)
