"""Index Expressions over gathered positions, as tile arithmetic.

A tile Index takes loop axes and parameters only; where an integer tile stands in the Expression (an
iota read at a gathered position) it becomes i64 operations. They wrap where the position is
garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from luminal.base.dtypes import DType, bool_, int64
from luminal.kernel.tile_ir import Tile
from luminal.shape.evaluation import postorder
from luminal.shape.expression import TRUE, Expression, Symbol

Apply = Callable[[str, tuple[Tile, ...], DType], Tile]
Index = Callable[[Expression, DType], Tile]

_FOLDED = {
    "add": "Add",
    "mul": "Mul",
    "floordiv": "FloorDiv",
    "mod": "Mod",
    "max": "Maximum",
    "and": "And",
    "or": "Or",
}


def compute(expr: Expression, bound: Mapping[Symbol, Tile], apply: Apply, index: Index) -> Tile:
    """`expr` as an i64 tile; `bound` gives the tiles of symbols, `index` what is free of them."""
    tiles = dict[Expression, Tile](bound.items())

    def value(node: Expression) -> Tile:
        if node.symbols().isdisjoint(bound.keys()):
            return index(node, int64)
        return tiles[node]

    for node in postorder(expr):
        if node not in tiles and not node.symbols().isdisjoint(bound.keys()):
            tiles[node] = _operation(node.op, [value(arg) for arg in node.args], apply, index)
    return value(expr)


def _operation(op: str, args: list[Tile], apply: Apply, index: Index) -> Tile:
    def integer(name: str, *pair: Tile) -> Tile:
        return apply(name, pair, int64)

    def compare(name: str, *pair: Tile) -> Tile:
        return integer("Cast", apply(name, pair, bool_))

    if op in _FOLDED:
        return reduce(lambda a, b: integer(_FOLDED[op], a, b), args)
    if op == "min":
        return reduce(lambda a, b: integer("Select", apply("LessThan", (a, b), bool_), a, b), args)
    a, b = args
    if op == "lt":
        return compare("LessThan", a, b)
    if op == "eq":
        return compare("Equal", a, b)
    # Tiles have "less than" and "equal" alone: the other comparisons are the opposite of one, by a
    # xor with true.
    opposite = compare("LessThan", b, a) if op == "le" else compare("Equal", a, b)
    return integer("Xor", opposite, index(TRUE, int64))
