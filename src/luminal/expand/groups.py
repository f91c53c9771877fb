"""What the lanes of a group hold, combined: from afar through shared memory, then by exchanges.

A fold halves the lanes again and again: each adds what the lane half of the rest away holds, so
that partial results meet in the order in which `tile_ir.Reduce` folds a tile, on every device and
whatever its lanes exchange. Two halvings are one step in memory: a lane reads what three others
hold, and all meet half as often. The last such step is taken by all lanes, and all take part in
exchanges, in which both of a pair add the same two: so no lane has to be told the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from luminal.base.dtypes import DType
from luminal.expand.access import read
from luminal.expand.builder import integer
from luminal.expand.casts import from_memory, to_memory
from luminal.expand.ir import Barrier, Exchange, Operand
from luminal.expand.tiles import Tiles
from luminal.kernel.lanes import Lanes
from luminal.kernel.tile_ir import Buffer, Role, Space
from luminal.shape.expression import const

FOLDED_BYTES = 8 << 10
"""The most shared memory for a fold: values beyond it take turns."""
PARTS = 4  # values that a lane combines in a step: two halvings
Fold = Callable[[Operand, Operand], Operand]


# Both lanes of a pair add the same two values, so all hold the result afterwards and the bits are
# those of shared memory: sums do not depend on whether a device exchanges. On Intel's OpenCL for
# CPUs exchanges take 4 to 5 times as long as shared memory, so only GPUs exchange.
def fold_over_lanes(
    tiles: Tiles, lanes: Lanes, dtype: DType, values: Sequence[Operand], fold: Fold
) -> list[Operand]:
    """Each value combined over the lanes of one digit; all of these lanes get the results."""
    near = min(lanes.count, max(1, tiles.subgroup // lanes.stride))
    most = len(values)
    if near < lanes.count:
        most = max(1, FOLDED_BYTES // (tiles.lanes_in_group * dtype.size))
    folded: list[Operand] = []
    for first in range(0, len(values), most):
        some = values[first : first + most]
        if near < lanes.count:
            some = _from_afar(tiles, lanes, near, dtype, some, fold)
        folded += [_exchanged(tiles, lanes.stride, near, dtype, value, fold) for value in some]
    return folded


def _exchanged(
    tiles: Tiles, stride: int, near: int, dtype: DType, value: Operand, fold: Fold
) -> Operand:
    """A value combined over the lanes of a digit's last part, which exchange theirs."""
    while near > 1:
        near //= 2
        value = exchanged(tiles, near * stride, dtype, value, fold)
    return value


def exchanged(tiles: Tiles, distance: int, dtype: DType, value: Operand, fold: Fold) -> Operand:
    """A value combined with that of the lane so far away, which combines the same two."""
    b = tiles.b
    mine = to_memory(b, dtype, value)
    other = b.value(mine.type)
    b.emit(Exchange(other, mine, distance))
    return fold(value, from_memory(b, dtype, other))


def _from_afar(
    tiles: Tiles, lanes: Lanes, near: int, dtype: DType, values: Sequence[Operand], fold: Fold
) -> list[Operand]:
    """Values combined, of the lanes of one digit, over those alike in its last part, `near`."""
    b, size, lane = tiles.b, tiles.lanes_in_group, tiles.lane
    assert lane is not None
    name = _memory(tiles, dtype, len(values) * size)
    distances = range(0, len(values) * size, size)  # from the lane's number on
    b.emit(Barrier())  # the last results have been read
    for distance, value in zip(distances, values, strict=True):
        b.store(name, lane, to_memory(b, dtype, value), None, distance)
    left, place = lanes.count, tiles.digit(lanes)
    while left > PARTS * near:
        b.emit(Barrier())
        # Every lane comes to each barrier, also those that have nothing to combine any more: a
        # barrier that some lanes miss never ends.
        left //= PARTS
        mask = tiles.index.op("lt", place, left)
        further = range(left * lanes.stride, PARTS * left * lanes.stride, left * lanes.stride)
        rest = [[read(tiles, name, (lane, at + k), mask) for k in further] for at in distances]
        values = [_halved([x, *others], fold) for x, others in zip(values, rest, strict=True)]
        for distance, value in zip(distances, values, strict=True):
            b.store(name, lane, to_memory(b, dtype, value), mask, distance)
    b.emit(Barrier())
    beyond = tiles.index.op("sub", place, tiles.index.op("and", place, near - 1))
    start = tiles.index.op("sub", lane, tiles.index.op("mul", beyond, integer(lanes.stride)))
    parts = range(0, left * lanes.stride, near * lanes.stride)
    rest = [[read(tiles, name, (start, at + k), None) for k in parts] for at in distances]
    return [_halved(part, fold) for part in rest]


def _halved(parts: list[Operand], fold: Fold) -> Operand:
    """Two or four combined, halves at a time."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [fold(x, y) for x, y in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]


def _memory(tiles: Tiles, dtype: DType, size: int) -> str:
    """Shared memory of so many elements, which all folds of a dtype take turns with."""
    name = f"folded_{dtype.short}"
    buffer = tiles.buffers.get(name)
    if buffer is not None:
        # One buffer for all folds of a dtype, as large as the largest needs: shared memory is
        # little, and folds come one after the other.
        size = max(size, buffer.size.constant)
    tiles.buffers[name] = Buffer(name, dtype, const(size), Space.SHARED, Role.INOUT)
    return name
