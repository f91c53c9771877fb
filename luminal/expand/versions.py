"""Loops in two versions: where what masks ask of outer loops holds, they need not ask.

The edges of a convolution mask most of its loads, and most chunks are far from all edges. What a
mask asks of axes outside a loop is known before the loop: where it all holds the loop is written
without, so that a load of one element is an operand of the multiplication that it feeds; where not,
with its masks. Only the innermost loops around what multiplies are worth their code twice, and of
tiles only whole ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from luminal.expand.fold import uniform
from luminal.expand.tiles import Tiles
from luminal.kernel.tile_ir import Contract, Load, Loop, every_statement
from luminal.shape.expression import Expression, all_of


def write_versions(tiles: Tiles, loop: Loop, write: Callable[[], None]) -> None:
    """Writes a loop once or twice."""
    asked = all_of(_asked_outside(tiles, loop))
    holds = tiles.index.condition(asked)
    if uniform(holds) is not None:
        write()
        return
    tiles.holds = (asked,)
    tiles.b.where(holds, write)
    tiles.holds = ()
    tiles.b.where(tiles.b.negation(holds), write)


def _asked_outside(tiles: Tiles, loop: Loop) -> Iterator[Expression]:
    """What the masks of the loop ask of axes outside that are not tiled, if it is one to write
    twice.
    """
    if not _is_innermost(loop) or not tiles.whole.keys() >= {*tiles.active}:
        return
    inside = [loop, *every_statement(loop.body)]
    own = {each.axis for each in inside if isinstance(each, Loop)} | {*tiles.active}
    for load in inside:
        if isinstance(load, Load):
            guard, own_of = load.guard, own | {symbol for symbol, _ in load.indices}
            for part in guard.args if guard.op == "and" else (guard,):
                if part.symbols().isdisjoint(own_of):
                    yield part


def _is_innermost(loop: Loop) -> bool:
    """Does it multiply, and no loop inside that gives no values? (Versions could not give any.)"""
    inside = (each for each in every_statement(loop.body) if isinstance(each, Loop))
    return _multiplies(loop) and not any(map(_multiplies, inside))


def _multiplies(loop: Loop) -> bool:
    is_product = (isinstance(each, Contract) for each in every_statement(loop.body))
    return not loop.carries and any(is_product)
