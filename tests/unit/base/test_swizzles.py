"""Swizzles: the places of pieces of 16 bytes, as NVIDIA documents them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from luminal.base.swizzles import PIECE, SWIZZLES

# Where a piece stands in its line, by the figures of the CUDA C++ Programming Guide.
PIECES: dict[int, Callable[[int, int], int]] = {
    128: lambda line, piece: piece ^ line % 8,
    64: lambda line, piece: piece ^ line // 2 % 4,
    32: lambda line, piece: piece ^ line // 4 % 2,
}


@pytest.mark.parametrize("width", SWIZZLES)
def test_pieces_stand_where_the_maker_says(width: int) -> None:
    lines, tiles = 24, 2
    swizzle = SWIZZLES[width]
    places = [
        (line, byte, swizzle.place(line, byte, lines))
        for line in range(lines)
        for byte in range(tiles * width)
    ]
    for line, byte, place in places:
        piece = PIECES[width](line, byte % width // PIECE)
        tile = byte // width
        assert place == (tile * lines + line) * width + piece * PIECE + byte % PIECE
    assert sorted(place for *_, place in places) == [*range(lines * tiles * width)]


@pytest.mark.parametrize("width", SWIZZLES)
def test_a_column_of_pieces_meets_all_banks(width: int) -> None:
    """Eight lines at a time, as the memory serves 128 bytes at once."""
    swizzle = SWIZZLES[width]
    for byte in range(0, width, PIECE):
        places = {swizzle.place(line, byte, 8) % 128 for line in range(8)}
        assert len(places) == 8
    assert swizzle.alignment == 8 * width
