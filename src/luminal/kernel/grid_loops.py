"""The loops over a chunk of a kernel's grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from luminal.kernel.environment import Env
from luminal.kernel.evaluate import Evaluator
from luminal.kernel.guards import Range
from luminal.kernel.loops import LoopAxis
from luminal.kernel.schedule import Schedule
from luminal.shape.expression import Symbol, ceil_div, const, maximum, minimum

Grid = Sequence[tuple[LoopAxis, int]]
NO_SPANS: Mapping[Symbol, Range] = MappingProxyType({})


class GridLoops:
    """Opens the loops over the grid's axes, each over what a chunk has of it."""

    def __init__(self, schedule: Schedule, values: Evaluator) -> None:
        self.schedule = schedule
        self.values = values
        self.blocks = values.blocks

    def open(self, grid: Grid, env: Env, spans: Mapping[Symbol, Range] = NO_SPANS) -> Env:
        """Opens one loop for each axis that has more than one position in a chunk; `spans` says
        for some axes what is walked of them instead.
        """
        for loop, count in grid:
            if loop.symbol in spans:
                env = self.open_loop(loop, spans[loop.symbol], env)
            # A loop of one position is none: the number of the chunk is the position.
            elif count == 1 and self.schedule.tile(loop).size == 1:
                env = env.bind(loop.positions(self.values.grid_axis(loop.extent)))
            else:
                env = self.open_loop(loop, self.chunk(loop, count), env)
        return env

    def chunk(self, loop: LoopAxis, count: int) -> Range:
        """One chunk of a grid axis: of `count` positions, or whole (0)."""
        extent = self.values.canonical(loop.extent)
        if not count:
            return const(0), extent
        chunk = self.values.grid_axis(ceil_div(loop.extent, count))
        return chunk * count, minimum(chunk * count + count, extent)

    def open_loop(self, loop: LoopAxis, span: Range, env: Env, piece: Range | None = None) -> Env:
        """Opens a loop over `span`, or over what a piece of the axis has of it."""
        first, last = piece or (const(0), self.values.canonical(loop.extent))
        symbol = self.blocks.fresh_axis(last - first)
        start, stop = span
        if piece is not None:
            start, stop = maximum(start - first, 0), minimum(stop, last) - first
        self.blocks.open(symbol, start, stop, self.schedule.tile(loop))
        return env.bind(loop.positions(first + symbol))

    def tile_number(self, loop: LoopAxis, count: int) -> Symbol:
        """Which tile of an axis, of those in a chunk of `count` positions, or of all (0)."""
        size = self.schedule.tile(loop).size
        # A chunk is one tile, so its number is the tile's.
        if count == size:
            return self.values.grid_axis(ceil_div(loop.extent, count))
        tiles = ceil_div(self.values.canonical(loop.extent), size)
        start, stop = const(0), tiles
        if count:
            per_chunk = count // size
            chunk = self.values.grid_axis(ceil_div(loop.extent, count))
            start, stop = chunk * per_chunk, minimum(chunk * per_chunk + per_chunk, tiles)
        number = self.blocks.fresh_axis(tiles)
        self.blocks.open(number, start, stop)
        return number
