"""Swizzles: how factors lie in shared memory for instructions that read them there.

A block lies in tiles of lines of so many bytes, one line after the other; a line holds neighbours
along the sum or, of a block that is turned, rows or columns. Within a line pieces of 16 bytes
change places by the number of the line, so that lanes which read or write a column of pieces meet
all banks of the memory.
"""

from __future__ import annotations

from luminal.base.records import dataclass

PIECE = 16  # bytes that stay together
PERIOD = 8  # lines after which the places of pieces repeat


@dataclass(frozen=True, slots=True)
class Swizzle:
    """Lines of `width` bytes; `code` is what NVIDIA's descriptors call it for wgmma, and
    `tensor_code` for tcgen05.
    """

    width: int
    code: int
    tensor_code: int

    @property
    def alignment(self) -> int:
        """The bytes of which the address of a block is a multiple."""
        return PERIOD * self.width

    def place(self, line: int, byte: int, lines: int) -> int:
        """Where a byte of a line of a block lies, from the block's address on. Bytes beyond the
        width are those of the next tile, which has so many lines too.
        """
        tile, byte = divmod(byte, self.width)
        straight = (tile * lines + line) * self.width + byte
        return straight ^ (straight >> 3 & self.width - PIECE)


# By the PTX ISA's tables of matrix descriptors and of tcgen05's shared memory descriptors.
SWIZZLES = {
    swizzle.width: swizzle for swizzle in (Swizzle(128, 1, 2), Swizzle(64, 2, 4), Swizzle(32, 3, 6))
}
"""Those of wgmma and tcgen05, by their widths."""


def swizzle_of(line: int) -> int:
    """The greatest width of which lines of so many bytes are whole ones; 0 if there is none."""
    return next((width for width in sorted(SWIZZLES)[::-1] if line % width == 0), 0)
