"""Results of two rows by instructions that multiply two rows by two columns.

Such a dot (`Dot.is_pair`) has results of both rows for each column, one after the other. So the
sums of two rows are one value from the first product to the last, also where a loop carries them;
a row's own are taken out of it where something asks for them, after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.expand.ir import Operand, Type
from luminal.expand.tiles import Key, Position, Row, Tiles
from luminal.kernel.tile_ir import Carry, Contract, Loop, Tile

Places = tuple[Position, ...]
"""Those of two rows, or of the last one."""


def added_to(loop: Loop, carry: Carry) -> Contract | None:
    """The dot of two rows that adds to a carried value, if nothing else becomes of it."""
    product, last = None, carry.inner
    for statement in loop.body:
        if isinstance(statement, Contract) and statement.acc == last:
            product, last = statement, statement.out
        elif isinstance(statement, Loop):
            for inside in statement.carries:
                if inside.init == last:
                    product, last = added_to(statement, inside), inside.result
    return product if product is not None and product.dot.is_pair and last == carry.next else None


def pairs_of(tiles: Tiles, statement: Contract) -> list[Places] | None:
    """The positions whose results are computed together, two rows of the same columns, or the last
    row alone; None where the machine has no such dot for them, or lanes are no columns.
    """
    dot, out = statement.dot, statement.out
    wide = tiles.wide_axis(out.axes)
    if not dot.is_pair or (wide in statement.a.axes) is (wide in statement.b.axes):
        return None
    if not tiles.b.has(dot.name, Type(out.dtype, 2 * tiles.lanes(out.axes))):
        return None
    _, columns = _sides(tiles, statement)
    groups: dict[Key, list[Position]] = {}
    for _, at in tiles.positions(out.axes):
        groups.setdefault(tuple(at[a] for a in columns.axes if a in at), []).append(at)
    # Row by row, of all columns, so that few words of rows are held beside these.
    count = max(map(len, groups.values()))
    return [tuple(rows[n : n + 2]) for n in range(0, count, 2) for rows in groups.values()]


def multiplied(tiles: Tiles, statement: Contract) -> bool:
    """Writes the sums with the products added, if two rows are at a time."""
    pairs = pairs_of(tiles, statement)
    if pairs is None:
        return False
    b, out, lanes = tiles.b, statement.out, tiles.lanes(statement.out.axes)
    rows, columns = _sides(tiles, statement)
    near = {axis: 0 for axis in rows.axes if axis not in out.axes}
    elements: dict[Key, Row] = {}
    for places in pairs:
        one, other = (tiles.element(rows, {**at, **near}, 2) for at in _two(places))
        words = one if one is other else b.shuffle(one, other, (0, 3))
        acc = joined_rows(tiles, statement.acc, places, lanes)
        column = tiles.element(columns, {**places[0], **near}, lanes)
        both = b.op(statement.dot.name, acc, words, column)
        for n, at in enumerate(places):
            elements[tuple(at[axis] for axis in out.axes)] = Row(both, n)
    tiles.values[out.id] = elements
    return True


def joined_rows(tiles: Tiles, tile: Tile, places: Places, lanes: int) -> Operand:
    """The value of two rows together, of a single one twice."""
    parts = [tiles.values[tile.id][tuple(at[axis] for axis in tile.axes)] for at in places]
    first = parts[0]
    if isinstance(first, Row) and parts == [Row(first.both, n) for n in range(len(parts))]:
        return first.both
    one, other = (tiles.element(tile, at, lanes) for at in _two(places))
    return tiles.b.shuffle(one, other, [n // 2 + lanes * (n % 2) for n in range(2 * lanes)])


def _two(places: Places) -> Places:
    return (places * 2)[:2]


def _sides(tiles: Tiles, statement: Contract) -> Sequence[Tile]:
    """The factor that is the same in all lanes, and the one with a column in each."""
    wide = tiles.wide_axis(statement.out.axes)
    return sorted((statement.a, statement.b), key=lambda factor: wide in factor.axes)
