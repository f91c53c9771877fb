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

from luminal.expand.builder import Builder
from luminal.expand.ir import Operand

BLOCK_BYTES = 16


def folded(
    b: Builder, vectors: Sequence[Operand], combine: Callable[[Operand, Operand], Operand]
) -> list[Operand]:
    """Each of at least two vectors of a type as one scalar."""
    type_ = vectors[0].type
    block = max(1, BLOCK_BYTES // type_.dtype.size)
    found: list[Operand] = []
    while len(found) < len(vectors):
        rest = vectors[len(found) :]
        count = min(1 << (len(rest).bit_length() - 1), type_.lanes)
        found += _together(b, rest[:count], block, combine)
    return found


def _together(
    b: Builder,
    vectors: Sequence[Operand],
    block: int,
    combine: Callable[[Operand, Operand], Operand],
) -> list[Operand]:
    """A power of two of vectors, no more than they have lanes."""
    lanes, count = vectors[0].type.lanes, len(vectors)
    level = [vectors[k] for k in _order(count, lanes, block)]
    half = lanes // 2
    while half:
        lower, upper = _halves(level[0].type.lanes, half, block, len(level) > 1)
        pairs = zip(level[::2], level[1::2], strict=True) if len(level) > 1 else [level * 2]
        level = [combine(b.shuffle(x, y, lower), b.shuffle(x, y, upper)) for x, y in pairs]
        half //= 2
    return [b.lane(level[0], k) for k in range(count)]


@lru_cache(256)
def _halves(lanes: int, half: int, block: int, two: bool) -> tuple[list[int], list[int]]:
    """The lanes of one vector or `two` that meet those `half` as many lanes behind them."""
    size = block if half < block else lanes
    lower = [
        first + lane
        for start in range(0, lanes, size)
        for first in ((0, lanes) if two else (0,))
        for lane in range(start, min(start + size, lanes))
        if not lane & half
    ]
    return lower, [lane + half for lane in lower]


@lru_cache(256)
def _order(count: int, lanes: int, block: int) -> list[int]:
    """The order in which vectors pair up, so that their results lie in order."""
    level, half = [[k] * lanes for k in range(count)], lanes // 2
    while half:
        two = len(level) > 1
        lower, _ = _halves(len(level[0]), half, block, two)
        pairs = zip(level[::2], level[1::2], strict=True) if two else [level * 2]
        level = [[[*x, *y][lane] for lane in lower] for x, y in pairs]
        half //= 2
    found = [0] * count
    for lane, k in enumerate(level[0]):
        found[k] = lane
    return found
