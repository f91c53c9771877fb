"""The open loops of a kernel under construction, and where each new statement belongs.

A statement goes into the outermost open block in which all it depends on is known, so whatever is
free of a loop is computed before it, and equal values of one block are computed once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

from luminal.base.dtypes import DType
from luminal.kernel.schedule import SINGLE, TileChoice
from luminal.kernel.tile_ir import Carry, Loop, Once, Runs, Statement, Tile
from luminal.shape.expression import Expression, Symbol, axis, const

Keys = tuple[tuple[str, Expression], ...]


class Block:
    """One open loop (or the kernel's body): its statements so far and the values computed in it.

    `runs`: the end of a run, and the keys, where it walks runs. `once`: of how many axes, where it
    is run once for chunks.
    """

    __slots__ = ("known", "loop", "once", "runs", "statements")

    def __init__(
        self,
        loop: tuple[Symbol, Expression, Expression, TileChoice] | None,
        runs: tuple[Symbol, Keys] | None = None,
        once: int | None = None,
    ) -> None:
        self.loop = loop
        self.runs = runs
        self.once = once
        self.statements: list[Statement] = []
        self.known: dict[Any, Tile] = {}


# This is the whole of loop-invariant code motion and common subexpressions: a statement is put
# where it belongs when it is made, so there is no pass that moves it later, and no question whether
# moving it is legal.
class Blocks:
    """The stack of open blocks."""

    def __init__(self) -> None:
        self.stack = [Block(None)]
        self.levels: dict[Symbol, int] = {}  # of loop axes and of symbols bound to tiles
        self.tile_levels: dict[int, int] = {}
        self.tiled: dict[Symbol, int] = {}  # axes walked in tiles, and the level of their loop
        self.near: set[Symbol] = set()  # axes of neighbours
        self.axes = 0

    @property
    def depth(self) -> int:
        return len(self.stack) - 1

    @property
    def unrolled(self) -> int:
        """How often a statement inside the open loops is written."""
        return math.prod(block.loop[3].unroll for block in self.stack if block.loop is not None)

    def fresh_axis(self, extent: Expression) -> Symbol:
        self.axes += 1
        return axis(f"i{self.axes - 1}", extent)

    def level_of(self, symbols: Iterable[Symbol]) -> int:
        return max((self.levels.get(s, 0) for s in symbols), default=0)

    def tile_axes(self, symbols: Iterable[Symbol]) -> tuple[Symbol, ...]:
        """The symbols that are walked in tiles, outer loops first."""
        # The order of a tile's axes is that of their loops, so that two values of the same axes lie
        # alike and can be combined element by element.
        tiled = [s for s in set(symbols) if s in self.tiled]
        return tuple(sorted(tiled, key=lambda s: self.tiled[s]))

    def new(self, axes: Iterable[Symbol], dtype: DType, level: int) -> Tile:
        """A tile value defined at a level."""
        tile = Tile(len(self.tile_levels), self.tile_axes(axes), dtype)
        self.tile_levels[tile.id] = level
        return tile

    def put(self, statement: Statement, level: int) -> None:
        self.stack[level].statements.append(statement)

    def find(self, key: Any) -> Tile | None:
        """The value known under `key` in any open block."""
        for block in reversed(self.stack):
            if key in block.known:
                return block.known[key]
        return None

    def may_be_skipped(self, outer: int, inner: int, symbols: Collection[Symbol]) -> bool:
        """May a loop between two levels be empty, other than those over `symbols`?"""
        loops = [block.loop for block in self.stack[outer + 1 : inner + 1]]
        return any(
            loop[0] not in symbols and ((loop[2] - loop[1]).interval.lo or 0) < 1
            for loop in loops
            if loop is not None
        )

    def open(
        self, symbol: Symbol, start: Expression, stop: Expression, tile: TileChoice = SINGLE
    ) -> None:
        self.stack.append(Block((symbol, start, stop, tile)))
        self.levels[symbol] = self.depth
        if tile.size > 1:
            self.tiled[symbol] = self.depth

    def open_neighbours(self, count: int) -> Symbol:
        """A loop over neighbours that are held side by side."""
        symbol = self.fresh_axis(const(count))
        self.open(symbol, const(0), const(count), TileChoice(neighbours=count))
        self.near.add(symbol)
        return symbol

    def open_runs(
        self, first: Symbol, end: Symbol, start: Expression, stop: Expression, keys: Keys
    ) -> None:
        """A loop over runs: `first` and `end` are where each begins and ends."""
        self.stack.append(Block((first, start, stop, SINGLE), (end, keys)))
        self.levels[first] = self.levels[end] = self.depth

    def open_once(self, outer: int) -> None:
        """A block that is run once for chunks at the same positions along axes of the grid."""
        self.stack.append(Block(None, once=outer))

    def close_to(self, depth: int) -> None:
        """Ends the innermost loops until so many are open."""
        while self.depth > depth:
            self.close()

    def close(self, carries: tuple[Carry, ...] = ()) -> None:
        """Ends the innermost loop; it becomes a statement of the block around it."""
        block = self.stack.pop()
        body = tuple(block.statements)
        if block.once is not None:
            self.stack[-1].statements.append(Once(block.once, body))
            return
        assert block.loop is not None
        symbol, start, stop, tile = block.loop
        if block.runs is not None:
            end, keys = block.runs
            self.stack[-1].statements.append(Runs(symbol, end, start, stop, keys, body))
            return
        bound = tile.unroll, tile.vector, tile.lanes, tile.neighbours, tile.part
        loop = Loop(symbol, start, stop, body, carries, *bound)
        self.stack[-1].statements.append(loop)
        for carry in carries:
            self.tile_levels[carry.result.id] = self.depth
