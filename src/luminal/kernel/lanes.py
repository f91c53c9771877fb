"""How the positions of a loop are dealt to the lanes of a group."""

from __future__ import annotations

from luminal.base.records import dataclass


@dataclass(frozen=True, slots=True)
class Lanes:
    """How a loop deals its positions to the lanes of a group: as the digit of a lane's number that
    counts to `count` in steps of `stride`. Loops inside each other have digits of their own.
    """

    count: int = 1
    stride: int = 1

    def meets(self, other: Lanes) -> bool:
        """Have the two a part of the lane's number in common?"""
        return max(self.stride, other.stride) < min(
            self.count * self.stride, other.count * other.stride
        )

    def __str__(self) -> str:
        return f"{self.count}" if self.stride == 1 else f"{self.count} by {self.stride}"


ONE_LANE = Lanes()
