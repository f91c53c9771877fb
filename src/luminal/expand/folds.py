"""The lanes of several vectors folded at once.

A vector is folded by halves, and at each halving a half of the machine's lanes falls idle. Two
vectors fill a whole one: their lower halves beside their upper ones are one operation, then four
vectors' quarters, until each lane holds the result of a vector of its own. Eight vectors of eight
lanes take 7 operations for 24, and the lanes that meet are those that met before.

Within 16 bytes a processor moves lanes in a cycle, beyond them in three: so lanes of two vectors
alternate by 16 bytes once halves are shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from luminal.expand.builder import Builder
from luminal.expand.ir import Operand

BLOCK_BYTES = 16
Lanes = tuple[int, ...]
T = TypeVar("T")


def fold_together(
    b: Builder, vectors: Sequence[Operand], combine: Callable[[Operand, Operand], Operand]
) -> list[Operand]:
    """Each of at least two vectors of a type as one scalar."""
    type_ = vectors[0].type
    block = max(1, BLOCK_BYTES // type_.dtype.size)

    def meet(x: Operand, y: Operand, lower: Lanes, upper: Lanes) -> Operand:
        return combine(b.shuffle(x, y, lower), b.shuffle(x, y, upper))

    folded: list[Operand] = []
    while len(folded) < len(vectors):
        rest = vectors[len(folded) :]
        # Powers of two at a time, as vectors pair up; what is left over comes in the next turn.
        count = min(1 << (len(rest).bit_length() - 1), type_.lanes)
        ordered = [rest[k] for k in _order(count, type_.lanes, block)]
        scalars = _paired(ordered, type_.lanes, block, meet)
        folded += [b.lane(scalars, k) for k in range(count)]
    return folded


def _paired(
    level: Sequence[T], lanes: int, block: int, meet: Callable[[T, T, Lanes, Lanes], T]
) -> T:
    """What is left of a power of two of vectors, no more than they have lanes."""
    half = lanes // 2
    while half:
        two = len(level) > 1
        lower, upper = _halves(lanes, half, block, two)
        pairs = zip(level[::2], level[1::2], strict=True) if two else [(level[0], level[0])]
        level = [meet(x, y, lower, upper) for x, y in pairs]
        lanes, half = len(lower), half // 2
    return level[0]


@lru_cache(256)
def _halves(lanes: int, half: int, block: int, two: bool) -> tuple[Lanes, Lanes]:
    """The lanes of one vector or `two` that meet those `half` as many lanes behind them."""
    size = block if half < block else lanes
    lower = [
        first + lane
        for start in range(0, lanes, size)
        for first in ((0, lanes) if two else (0,))
        for lane in range(start, min(start + size, lanes))
        if not lane & half
    ]
    return (*lower,), tuple([lane + half for lane in lower])


@lru_cache(256)
def _order(count: int, lanes: int, block: int) -> Lanes:
    """The order in which vectors pair up, so that their results lie in order."""

    def meet(x: list[int], y: list[int], lower: Lanes, _: Lanes) -> list[int]:
        return [(x + y)[lane] for lane in lower]

    held = _paired([[k] * lanes for k in range(count)], lanes, block, meet)
    return tuple([held.index(k) for k in range(count)])
