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
from luminal.kernel.tile_ir import NESTED, Contract, Load, Loop, Statement
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
    inside = list(_statements(loop))
    if not _is_innermost(loop) or not tiles.whole.keys() >= {*tiles.active}:
        return
    own = {each.axis for each in inside if isinstance(each, Loop)} | {*tiles.active}
    for load in inside:
        if isinstance(load, Load):
            guard, own_of = load.guard, own | {symbol for symbol, _ in load.indices}
            for part in guard.args if guard.op == "and" else (guard,):
                if part.symbols().isdisjoint(own_of):
                    yield part


def _is_innermost(loop: Loop) -> bool:
    """Does it multiply, and no loop inside that gives no values? (Versions could not give any.)"""
    if loop.carries or not any(isinstance(each, Contract) for each in _statements(loop)):
        return False
    return not any(_is_innermost(each) for each in _loops(loop) if each is not loop)


def _loops(loop: Loop) -> Iterator[Loop]:
    return (each for each in _statements(loop) if isinstance(each, Loop))


def _statements(statement: Statement) -> Iterator[Statement]:
    yield statement
    if isinstance(statement, NESTED):
        for inner in statement.body:
            yield from _statements(inner)
