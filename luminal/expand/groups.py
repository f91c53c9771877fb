"""What the lanes of a group hold, combined through shared memory.

A fold halves the lanes again and again: each adds what the lane half of the rest away holds, so
that partial results meet in the order in which `tile_ir.Reduce` folds a tile. Two halvings are one
step: a lane reads what three others hold, and all meet half as often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from luminal.dtypes import DType
from luminal.expand.access import read
from luminal.expand.builder import integer
from luminal.expand.casts import to_memory
from luminal.expand.ir import Barrier, Operand
from luminal.expand.tiles import Tiles
from luminal.kernel.lanes import Lanes
from luminal.kernel.tile_ir import Buffer, Role, Space
from luminal.shape.expression import const

FOLDED_BYTES = 8 << 10
"""Of shared memory for a fold, at most: values beyond it take turns."""
Fold = Callable[[Operand, Operand], Operand]


def fold_over_lanes(
    tiles: Tiles, lanes: Lanes, dtype: DType, values: Sequence[Operand], fold: Fold
) -> list[Operand]:
    """Each value combined over the lanes of one digit; all of these lanes get the results."""
    most = max(1, FOLDED_BYTES // (tiles.lanes_in_group * dtype.size))
    folded: list[Operand] = []
    for first in range(0, len(values), most):
        folded += _folded(tiles, lanes, dtype, values[first : first + most], fold)
    return folded


def _folded(
    tiles: Tiles, lanes: Lanes, dtype: DType, values: Sequence[Operand], fold: Fold
) -> list[Operand]:
    b, size, lane = tiles.b, tiles.lanes_in_group, tiles.lane
    assert lane is not None
    name = _memory(tiles, dtype, len(values) * size)
    own = range(0, len(values) * size, size)  # from the lane's number on
    b.emit(Barrier())  # the last results have been read
    for distance, value in zip(own, values, strict=True):
        b.store(name, lane, to_memory(b, dtype, value), None, distance)
    left, place = lanes.count, tiles.digit(lanes)
    while left > 1:
        b.emit(Barrier())
        parts = min(4, left)
        left //= parts
        mask = tiles.index.op("lt", place, left)
        further = range(left * lanes.stride, parts * left * lanes.stride, left * lanes.stride)
        rest = [[read(tiles, name, (lane, at + k), mask) for k in further] for at in own]
        values = [_halved([x, *others], fold) for x, others in zip(values, rest, strict=True)]
        for distance, value in zip(own, values, strict=True):
            b.store(name, lane, to_memory(b, dtype, value), mask, distance)
    b.emit(Barrier())
    start = tiles.index.op("sub", lane, tiles.index.op("mul", place, integer(lanes.stride)))
    return [read(tiles, name, (start, distance), None) for distance in own]


def _halved(parts: list[Operand], fold: Fold) -> Operand:
    """Two or four combined, halves at a time."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [fold(x, y) for x, y in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]


def _memory(tiles: Tiles, dtype: DType, size: int) -> str:
    """Shared memory of so many elements, which all folds of a dtype take turns with."""
    name = f"folded_{dtype.short}"
    known = tiles.buffers.get(name)
    if known is not None:
        size = max(size, known.size.constant)
    tiles.buffers[name] = Buffer(name, dtype, const(size), Space.SHARED, Role.INOUT)
    return name
