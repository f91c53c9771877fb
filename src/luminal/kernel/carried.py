"""Loops that carry tiles with the axes of several of them: what is done to a block as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field

from luminal.base.dtypes import DType
from luminal.base.records import dataclass
from luminal.kernel.evaluate import Evaluator
from luminal.kernel.schedule import TileChoice
from luminal.kernel.staging import Walk
from luminal.kernel.tile_ir import Carry, Tile
from luminal.shape.expression import Expression, Symbol, const


@dataclass(slots=True)
class Carried:
    """Values carried through an open loop: `inner` in it, `next` for the next step; `results`
    after it.
    """

    inner: list[Tile]
    next: list[Tile] = field(default_factory=list)
    results: list[Tile] = field(default_factory=list)


class CarriedLoops:
    """Opens and closes such loops among those of an evaluator."""

    def __init__(self, values: Evaluator) -> None:
        self.values = values
        self.blocks = values.blocks

    def tile(self, axes: Sequence[Symbol], dtype: DType, level: int) -> Tile:
        """A tile with these axes, outermost first, whether their loops are open or not."""
        tile = Tile(len(self.blocks.tile_levels), tuple(axes), dtype)
        self.blocks.tile_levels[tile.id] = level
        return tile

    @contextmanager
    def carried(
        self,
        loop: tuple[Symbol, Expression, TileChoice],
        before: Sequence[Tile],
        axes: Sequence[Sequence[Symbol]],
    ) -> Iterator[tuple[Symbol, Carried]]:
        """A loop that carries tiles, each with these axes."""
        symbol, stop, tile = loop
        level = self.blocks.depth
        self.blocks.open(symbol, const(0), stop, tile)
        tiles = [*zip(before, axes, strict=True)]
        carried = Carried([self.tile(axes_of, t.dtype, level + 1) for t, axes_of in tiles])
        yield symbol, carried
        carried.results = [self.tile(axes_of, t.dtype, level) for t, axes_of in tiles]
        pairs = zip(carried.results, before, carried.inner, carried.next, strict=True)
        self.blocks.close(tuple(Carry(*carry) for carry in pairs))

    @contextmanager
    def carried_through(
        self,
        loops: Sequence[Walk],
        before: Sequence[Tile],
        axes: Sequence[Sequence[Symbol]] | None = None,
    ) -> Iterator[Carried]:
        """Loops in each other that carry tiles, each with these axes, those of all loops by
        default: of one step each, what is done inside is done to a tile.
        """
        axes = [tiled(loops)] * len(before) if axes is None else axes
        first, *rest = loops
        with self.carried((first.axis, first.stop, first.tile), before, axes) as (_, held):
            if not rest:
                yield held
            else:
                with self.carried_through(rest, held.inner, axes) as inside:
                    yield inside
                held.next = inside.results
        if rest:
            inside.results = held.results


def tiled(loops: Sequence[Walk]) -> list[Symbol]:
    """The axes of the loops that have more than one position in a tile."""
    return [walk.axis for walk in loops if walk.tile.size > 1]


def joint(walks: Sequence[Walk]) -> Expression:
    """The position at which loops over blocks, and what is in one, are."""
    position: Expression = const(0)
    for walk in walks:
        position = position * walk.stop + walk.axis
    return position
