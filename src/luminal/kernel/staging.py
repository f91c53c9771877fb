"""Values kept in memory nearer to where they are read: strips, blocks of factors, rows, sums.

What loops read again and again is *staged*: written once to a buffer, scratch of a worker or memory
that the lanes of a group share, and read from there. Every such buffer is made of dimensions, the
outermost first, and is filled by loops that may walk these in another order. So one record of
choices (`schedule.Stage`) and the two steps here serve packed strips of products and convolutions,
blocks of shared memory, and the columns that a cascade copies:

    room = staging.room(dimensions, dtype)      where each element lies
    staging.fill(room, walks, env, elements)    loops, what they compute, one store for each
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from luminal.base.dtypes import DType
from luminal.base.records import dataclass
from luminal.kernel.dimensions import Dimension, along, in_lines, row_major
from luminal.kernel.environment import Env
from luminal.kernel.evaluate import Evaluator
from luminal.kernel.neighbours import multiplied
from luminal.kernel.schedule import SINGLE, Stage, TileChoice
from luminal.kernel.staged import Staged
from luminal.kernel.tile_ir import Space, Tile
from luminal.shape.expression import Expression, Symbol, opaque

Positions = Callable[[Expression], Mapping[Symbol, Expression]]
Elements = Callable[[Env], Iterable[tuple[Env, Tile]]]
"""Where elements lie and what they are, at a point of the loops that fill a stage."""


@dataclass(frozen=True, slots=True)
class Walk:
    """A loop that fills a stage: what it binds, at each position, to the axes of terms."""

    axis: Symbol
    start: Expression
    stop: Expression
    positions: Positions
    tile: TileChoice = SINGLE


class Staging:
    """Makes room for staged values of one kernel, and fills it."""

    def __init__(self, values: Evaluator) -> None:
        self.values = values
        self.blocks = values.blocks

    def room(
        self,
        dimensions: Sequence[Dimension],
        dtype: DType,
        *,
        pad: int = 0,
        space: Space = Space.SCRATCH,
        buffers: int = 1,
        swizzle: int = 0,
        piece: int = 0,
    ) -> Staged:
        """A new buffer; `pad`, `space`, `buffers`, `swizzle` and `piece` as in `Stage`."""
        if swizzle:
            outer, inner = dimensions
            dimensions = in_lines(outer, inner, swizzle // dtype.size)
        straight = dimensions
        if piece:
            outer, inner = dimensions
            moved = along(inner.digit, outer.digit, inner.extent, piece, dtype.size)
            dimensions = outer, Dimension(moved, inner.extent)
        turn: Symbol | None = None if buffers == 1 else opaque("turn")
        position, size = row_major(dimensions, pad // dtype.size)
        plain, _ = row_major(straight, pad // dtype.size)
        if turn is not None:
            position, plain = turn * size + position, turn * size + plain
        name = self.values.new_buffer(dtype, size * buffers, space, swizzle)
        return Staged(name, dtype, position, self.blocks.depth, turn, plain)

    def room_of(self, stage: Stage, dimensions: Mapping[Symbol, Dimension]) -> Staged:
        """The buffer of a stage, its dimensions given by their symbols."""
        return self.room(
            [dimensions[symbol] for symbol in stage.order],
            multiplied(stage.term, stage.dot),
            pad=stage.pad,
            space=stage.space,
            buffers=stage.buffers,
            swizzle=stage.swizzle,
            piece=stage.piece,
        )

    def open(self, walk: Walk, env: Env) -> Env:
        """Opens one loop; gives the point inside of it."""
        self.blocks.open(walk.axis, walk.start, walk.stop, walk.tile)
        return env.bind(walk.positions(walk.axis))

    def fill(self, room: Staged, walks: Iterable[Walk], env: Env, elements: Elements) -> None:
        """Opens the loops, writes the elements, and closes all loops that this has opened."""
        depth = self.blocks.depth
        for walk in walks:
            env = self.open(walk, env)
        # Each element is computed and stored before the next: a walk that is written out would hold
        # all of them in registers else.
        for here, tile in elements(env):
            self.values.store_staged(room, here, tile)
        self.blocks.close_to(depth)
