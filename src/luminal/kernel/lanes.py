"""How the positions of a loop are dealt to the lanes of a group."""

from __future__ import annotations

from collections.abc import Iterable

from luminal.base.dots import Dot
from luminal.base.records import dataclass


@dataclass(frozen=True, slots=True)
class Lanes:
    """How a loop deals its positions to the lanes of a group: as the digit of a lane's number that
    counts to `count` in steps of `stride`. Loops inside each other have digits of their own. A lane
    has `run` neighbouring positions: the position of its r-th in a turn is
    `(turn * count + digit) * run + r`.
    """

    count: int = 1
    stride: int = 1
    run: int = 1

    @property
    def size(self) -> int:
        """The positions of a turn, of all lanes together."""
        return self.count * self.run

    def meets(self, other: Lanes) -> bool:
        """Have the two a part of the lane's number in common?"""
        return max(self.stride, other.stride) < min(
            self.count * self.stride, other.count * other.stride
        )

    def __str__(self) -> str:
        runs = f" in runs of {self.run}" if self.run > 1 else ""
        by = f" by {self.stride}" if self.stride > 1 else ""
        return f"{self.count}{by}{runs}"


ONE_LANE = Lanes()


@dataclass(frozen=True, slots=True)
class Part:
    """A side of the blocks that lanes multiply together by a dot: "m" (rows), "n" (columns) or "k"
    (steps of the sum). The lanes that step together hold its positions as the fragments say.
    """

    dot: Dot
    side: str

    @property
    def extent(self) -> int:
        """How many positions the side has."""
        extent: int = getattr(self.dot, self.side)
        return extent

    @property
    def lanes(self) -> Lanes:
        """The lanes that hold it, which no loop around deals positions to."""
        return Lanes(self.dot.together)

    def __str__(self) -> str:
        return f"{self.side} of {self.dot}"


def block_of(parts: Iterable[Part]) -> str | None:
    """Which block of a dot has these sides: "a" or "b" of the factors, or "c", of which a value
    without one of its sides holds the same along that; None if there is none.
    """
    parts = tuple(parts)
    sides = "".join(sorted(part.side for part in parts))
    if len({part.dot for part in parts}) != 1:
        return None
    return {"km": "a", "kn": "b", "mn": "c", "m": "c", "n": "c"}.get(sides)
