"""Runs: a loop over all positions, whose body runs at the last one of each run."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from luminal.expand.access import read
from luminal.expand.ir import Operand
from luminal.expand.tiles import Tiles
from luminal.kernel.tile_ir import Runs, Statement


def write_runs(tiles: Tiles, runs: Runs, body: Callable[[tuple[Statement, ...]], None]) -> None:
    """The first position of the run and its keys are carried; `body` writes the statements."""
    b, index = tiles.b, tiles.index
    start, stop = index.scalar(runs.start), index.scalar(runs.stop)
    keys = _keys(tiles, runs, start, b.op("lt", start, stop))
    with b.loop(start, stop, 1, (start, *keys)) as loop:
        first, *keys = loop.inner
        following = b.op("add", loop.index, 1)
        inside = b.op("lt", following, stop)
        others = _keys(tiles, runs, following, inside)
        equal = [b.op("eq", key, other) for key, other in zip(keys, others, strict=True)]
        same = reduce(lambda x, y: b.op("and", x, y), equal, inside)
        ends = b.negation(same)
        with b.branch(ends):
            index.bind(runs.axis, first)
            index.bind(runs.end, following)
            tiles.ends.add(runs.end)
            body(runs.body)
        loop.next = (b.op("select", same, first, following), *others)


def _keys(tiles: Tiles, runs: Runs, position: Operand, mask: Operand) -> list[Operand]:
    """The keys at a position."""
    tiles.index.bind(runs.axis, position)
    return [read(tiles, name, tiles.index.place(offset, 0), mask) for name, offset in runs.keys]
