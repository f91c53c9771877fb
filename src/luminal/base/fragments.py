"""Fragments: which lane of a matrix instruction holds which elements of a block, as data.

Lanes that multiply together hold a block between them: a lane's number and the number of one of its
elements say, bit by bit, which row, column and step of the sum the element is. So a fragment is a
list of bits, the lane's first, low ones first: "k1 k2 m0 m1 m2 | k0 m3 k3" says that bit 0 of the
lane is bit 1 of the step, and bit 0 of the element's number bit 0 of the step. A "-" is a bit that
changes nothing: lanes that differ in it hold the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.base.records import dataclass

Array = NDArray[Any]
Bits = tuple[tuple[int, int], ...]
"""Bits of a number that are bits of a position: (of the number, of the position)."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The bits of a lane's number, then of its element's, each as (side, bit) or None for one that
    changes nothing.
    """

    lane: tuple[tuple[str, int] | None, ...]
    element: tuple[tuple[str, int] | None, ...]

    @property
    def elements(self) -> int:
        """How many elements a lane holds."""
        return 1 << len(self.element)

    def lane_bits(self, side: str) -> Bits:
        """The bits of a lane's number that are bits of a side."""
        return _bits(self.lane, side)

    def element_bits(self, side: str) -> Bits:
        """The bits of an element's number that are bits of a side."""
        return _bits(self.element, side)

    def offsets(self, side: str) -> tuple[int, ...]:
        """Where on a side the elements of a lane stand, from its first one on."""
        bits = [(n, target) for n, (_, target) in enumerate(self.element_bits(side))]
        return tuple(moved(tuple(bits), piece) for piece in range(1 << len(bits)))

    def piece(self, side: str, element: int) -> int:
        """Which of `offsets` an element stands at."""
        sources = [source for source, _ in self.element_bits(side)]
        return sum((element >> source & 1) << n for n, source in enumerate(sources))

    def folded(self, side: str) -> tuple[int, ...]:
        """The bits of a side in the order in which what lanes hold is folded along it: a lane's own
        elements first, then those of lanes that are far apart, and of near ones.
        """
        of_elements = [target for _, target in self.element_bits(side)]
        return *of_elements, *(target for _, target in reversed(self.lane_bits(side)))

    def position(self, side: str, lane: int, element: int) -> int:
        """Where on a side an element of a lane stands."""
        return moved(self.lane_bits(side), lane) | moved(self.element_bits(side), element)

    def places(self) -> Iterator[tuple[int, int, Mapping[str, int]]]:
        """Each lane, each of its elements, and where that stands on the sides."""
        sides = {bit[0] for bit in (*self.lane, *self.element) if bit is not None}
        for lane in range(1 << len(self.lane)):
            for element in range(self.elements):
                yield lane, element, {s: self.position(s, lane, element) for s in sides}

    def in_words(self, count: int) -> Fragment:
        """The fragment of words that hold `count` elements each, side by side in a lane."""
        # The low bits of an element's number say where in a word it is, which are not asked for
        # now.
        return Fragment(self.lane, self.element[count.bit_length() - 1 :])

    def __str__(self) -> str:
        halves = (
            " ".join("-" if bit is None else f"{bit[0]}{bit[1]}" for bit in half)
            for half in (self.lane, self.element)
        )
        return " | ".join(halves)


def moved(bits: Bits, number: int) -> int:
    """The bits of a position that those of a number are."""
    return sum((number >> source & 1) << target for source, target in bits)


def _bits(half: tuple[tuple[str, int] | None, ...], side: str) -> Bits:
    return tuple((n, bit[1]) for n, bit in enumerate(half) if bit is not None and bit[0] == side)


@lru_cache(256)
def fragment(text: str) -> Fragment:
    """The fragment that a text spells."""
    lane, element = (
        tuple(None if bit == "-" else (bit[0], int(bit[1:])) for bit in half.split())
        for half in text.split("|")
    )
    return Fragment(lane, element)


def gathered(held: Array, fragment: Fragment, sides: dict[str, int], dtype: np.dtype[Any]) -> Array:
    """The block that lanes hold of a dtype, a row of words each."""
    elements = np.ascontiguousarray(held).view(dtype)
    block = np.zeros(tuple(sides.values()), dtype)
    for lane, element, at in fragment.places():
        block[tuple(at[side] for side in sides)] = elements[lane, element]
    return block


def dealt(block: Array, fragment: Fragment, sides: str) -> Array:
    """What each lane holds of a block."""
    held = np.zeros((1 << len(fragment.lane), fragment.elements), block.dtype)
    for lane, element, at in fragment.places():
        held[lane, element] = block[tuple(at[side] for side in sides)]
    return held
