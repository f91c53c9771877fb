"""Prefixes in registers: a vector combined with itself, moved by 1, 2, 4 ... lanes.

Four rounds serve 16 lanes. The loop around carries one total from step to step: of its latency only
one combination is left for all lanes, where walking them one by one has one for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from luminal.base.dtypes import bool_
from luminal.expand.ir import Constant, Operand, Type
from luminal.expand.pointwise import POINTWISE
from luminal.expand.tiles import Elements, Tiles
from luminal.hlir.monoid import COMBINATIONS
from luminal.kernel.tile_ir import Prefix


# Log2 of the lanes in rounds, and one addition of latency from vector to vector in the place of
# sixteen. Integers are not scanned so: one by one they take a cycle each.
def write_prefix(tiles: Tiles, statement: Prefix) -> None:
    """Write the prefixes along the vector of its axis, and their totals."""
    axis, value = statement.axis, statement.value
    pieces = tiles.pieces[axis]
    data = COMBINATIONS[statement.op].identity_bytes(value.dtype)
    nothing = Constant(Type(value.dtype.word, pieces.width), data * pieces.width)
    elements: Elements = {}
    totals: Elements = {}
    for key, at in tiles.positions(statement.total.axes):
        parts = [tiles.element(value, {**at, axis: n}, pieces.width) for n in range(pieces.number)]
        for n, live in enumerate(tiles.live.get(axis, ())):
            parts[n] = tiles.b.op("select", live, parts[n], nothing)
        distance = 1
        while distance < pieces.size:
            parts = _round(tiles, statement, parts, distance)
            distance *= 2
        for n, part in enumerate(parts):
            there = {**at, axis: n}
            elements[tuple(there[a] for a in statement.out.axes)] = part
        totals[key] = tiles.b.lane(parts[-1], pieces.width - 1)
    tiles.values[statement.out.id] = elements
    tiles.values[statement.total.id] = totals


def _round(
    tiles: Tiles, statement: Prefix, parts: Sequence[Operand], distance: int
) -> list[Operand]:
    """Each position of the row `parts` combined with the one so far before it."""
    b, dtype = tiles.b, statement.value.dtype
    width = parts[0].type.lanes
    whole = distance // width
    combined = list(parts)
    for k in range(whole, len(parts)):
        if whole:
            before = parts[k - whole]
        else:  # turned round, where there is no part before it: those lanes stay as they are
            lanes = range(width - distance, 2 * width - distance)
            before = b.shuffle(parts[max(0, k - 1)], parts[k], lanes)
        both = POINTWISE[statement.op](b, dtype, (before, parts[k]))
        if not whole and not k:
            has_one = np.arange(width) >= distance
            mask = Constant(Type(bool_, width), has_one.tobytes())
            both = b.op("select", mask, both, parts[k])
        combined[k] = both
    return combined
