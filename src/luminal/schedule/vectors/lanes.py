"""Which axis a kernel's lanes run along, and which one the rows of a register tile."""

from __future__ import annotations

from collections.abc import Sequence

from luminal.base.records import dataclass
from luminal.kernel.layout import filled
from luminal.kernel.loops import Access, LoopAxis

FOLD = 4  # vector operations that fold the lanes of one sum
FULL = 0.9  # of the lanes in use: below, an axis pays along which a weight lies in panels


@dataclass(frozen=True, slots=True)
class Lanes:
    """Judges the axes of one kernel: `most` lanes to a vector, `inside` of reductions' own axes,
    which hold nothing as wide as results may be; results over `grid`, reductions over `sequential`.
    """

    most: int
    inside: int
    grid: tuple[LoopAxis, ...]
    sequential: tuple[LoopAxis, ...]

    def best(self, candidates: Sequence[LoopAxis], reads: Sequence[Access]) -> LoopAxis | None:
        """The axis along which most accesses are contiguous, if any is."""
        wide = [x for x in candidates if self.width(x) > 1 and self.score(x, reads) > 0]
        return max(wide, key=lambda x: self.score(x, reads), default=None)

    def width(self, loop: LoopAxis) -> int:
        """Lanes worth having along an axis."""
        positions, lanes = loop.estimate, self._most(loop)
        while lanes > 1 and positions <= lanes // 2:
            lanes //= 2
        return lanes

    def score(self, loop: LoopAxis, reads: Sequence[Access]) -> float:
        """How contiguous the accesses are along an axis, and how well it fills its vectors."""
        return self.used(loop) * (0.01 + sum(access.contiguity(loop) for access in reads))

    def used(self, loop: LoopAxis) -> float:
        """The share of the lanes at work along an axis."""
        steps = -(-loop.estimate // self.width(loop))
        used = filled(loop.estimate, self._most(loop))
        return used * steps / (steps + FOLD) if loop in self.sequential else used

    def _most(self, loop: LoopAxis) -> int:
        return self.inside if loop in self.sequential else self.most

    def rows(self, vector: LoopAxis, reads: Sequence[Access]) -> LoopAxis | None:
        """The longest grid axis that some reads have and some have not: rows of a register tile.

        Best one that no read has together with the vector axis: then each value read meets all
        values read along the other axis, as in a matrix product. Of two as long the one whose
        neighbours share lines of memory.
        """
        shared = [x for x in self.grid if x is not vector and is_partly_moved(x, reads)]
        apart = [x for x in shared if not any(a.moves(x) and a.moves(vector) for a in reads)]

        def length(loop: LoopAxis) -> tuple[int, int]:
            return loop.estimate, sum(access.is_near(loop) for access in reads)

        longest = max(apart, key=length, default=None)
        if longest is not None and longest.estimate > 1:
            return longest
        return max(shared, key=length, default=None)


def is_partly_moved(loop: LoopAxis, reads: Sequence[Access]) -> bool:
    """Some reads move along the axis and some do not: positions along it share the latter."""
    moving = [access.moves(loop) for access in reads]
    return any(moving) and not all(moving)
