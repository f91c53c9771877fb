"""How an operand's dimensions and its user's are the same: what a cut of one is of the other.

A user reads `source[map(i)]`. If an entry of the map has a digit of a position of the user's with a
coefficient c, and all else in the entry stays below c or is a multiple of a whole period, then this
digit of the user's position *is* a digit of the source's. A cut of one is then a cut of the other,
and a rank reads only what it holds. That is so for transposes, reshapes, grouped heads, strided
windows that do not overlap, and for the halves of a head that a rotation swaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from luminal.base.records import dataclass
from luminal.distribute.layout import Cut, fits
from luminal.hlir.attributes import GatherAttrs, ScatterAttrs, Shape, ViewAttrs
from luminal.hlir.ops import Node, Value
from luminal.shape.arithmetic import CACHE
from luminal.shape.digits import digit
from luminal.shape.expression import TRUE, Expression, sum_of
from luminal.shape.prove import prove
from luminal.shape.view import identity


@dataclass(frozen=True, slots=True)
class Edge:
    """An operand as its user sees it: `value` (never a View), read at `map` inside `domain` for
    each position of `shape`. An entry of the map that is no Expression is a Slot of an index
    tensor.
    """

    value: Value
    shape: Shape
    map: tuple[Expression | int, ...]
    domain: Expression = TRUE

    @property
    def is_identity(self) -> bool:
        """Does each position read itself?"""
        is_own = self.shape == self.value.shape and self.map == _own(self.shape)
        return is_own and self.domain is TRUE

    def to_source(self, dimension: int, cut: Cut) -> tuple[int, Cut] | None:
        """What a cut of the user's positions is of the source's; None if it is no cut there."""
        return _to_source(self.map, self.value.shape, self.shape, self.domain, dimension, cut)

    def to_user(self, dimension: int, cut: Cut) -> tuple[int, Cut] | None:
        """What a cut of the source is of the user's positions; None if it is no cut there."""
        return _to_user(self.map, self.value.shape, self.shape, self.domain, dimension, cut)

    def of_source(self, cuts: Mapping[str, tuple[int, Cut]]) -> dict[str, tuple[int, Cut]]:
        """The cuts of the user's positions that are cuts of the source, as those."""
        moved = {axis: self.to_source(*where) for axis, where in cuts.items()}
        return {axis: where for axis, where in moved.items() if where is not None}

    def of_user(self, cuts: Mapping[str, tuple[int, Cut]]) -> dict[str, tuple[int, Cut]]:
        """The cuts of the source that are cuts of the user's positions, as those."""
        moved = {axis: self.to_user(*where) for axis, where in cuts.items()}
        return {axis: where for axis, where in moved.items() if where is not None}


_Map = tuple[Expression | int, ...]


# Layers repeat, and ask the same of the same maps.
@lru_cache(CACHE)
def _to_source(
    entries: _Map, source: Shape, shape: Shape, domain: Expression, dimension: int, cut: Cut
) -> tuple[int, Cut] | None:
    for k, entry in enumerate(entries):
        if isinstance(entry, Expression):
            block = _source_block(entry, shape, dimension, cut, domain)
            if block is not None and fits(source[k], cut._replace(block=block)):
                return k, cut._replace(block=block)
    return None


@lru_cache(CACHE)
def _to_user(
    entries: _Map, source: Shape, shape: Shape, domain: Expression, dimension: int, cut: Cut
) -> tuple[int, Cut] | None:
    entry = entries[dimension]
    if not isinstance(entry, Expression):
        return None
    for monomial, factor in entry.terms:
        read = digit(monomial, factor, shape)
        if read is None:
            continue
        steps = cut.block.exact_div(read.coefficient)
        if steps is None:
            continue
        user_cut = cut._replace(block=steps * read.divisor)
        if not fits(shape[read.dimension], user_cut):
            continue
        back = _to_source(entries, source, shape, domain, read.dimension, user_cut)
        if back == (dimension, cut):
            return read.dimension, user_cut
    return None


@lru_cache(CACHE)
def _own(shape: Shape) -> tuple[Expression, ...]:
    """The map by which each position reads itself."""
    return identity(shape).map


def edge_of(value: Value) -> Edge:
    """The edge of a value that is read at its own positions; a View is looked through."""
    if isinstance(value.node.attrs, ViewAttrs):
        view = value.node.attrs.view
        return Edge(value.node.args[0], view.shape, view.map, view.domain)
    return Edge(value, value.shape, _own(value.shape))


def gathered(node: Node) -> Edge:
    """The edge by which a Gather reads its source. The source is taken as it is, Views too."""
    attrs: GatherAttrs = node.attrs
    return Edge(node.args[0], attrs.shape, attrs.map)


def scattered(node: Node) -> Edge:
    """The edge by which a Scatter finds its destination: from the positions of what it writes."""
    attrs: ScatterAttrs = node.attrs
    return Edge(node.args[0], node.args[1].shape, attrs.map)


def _source_block(
    entry: Expression, shape: Shape, dimension: int, cut: Cut, domain: Expression
) -> Expression | None:
    """The weight that the digit which `cut` is of `i_dimension` has in an entry of a map."""
    for monomial, factor in entry.terms:
        read = digit(monomial, factor, shape)
        if read is None or read.dimension != dimension:
            continue
        steps = cut.block.exact_div(read.divisor)
        if steps is None:
            continue
        after = read.divisor * read.positions
        # A digit that has none above it may end in pads.
        if after != shape[dimension] and after.exact_div(cut.period) is None:
            continue
        block = steps * read.coefficient
        rest = _below(entry, (monomial, factor), block * cut.ranks)
        inside = [domain] if domain is not TRUE else []
        if prove(rest >= 0, inside) and prove(rest < read.coefficient, inside):
            return block
    return None


def _below(entry: Expression, without: tuple[Expression, int], period: Expression) -> Expression:
    """The entry without one summand and without those that are multiples of the period."""
    kept: list[Expression] = []
    for term in entry.terms:
        if term != without:
            summand = term[0] * term[1]
            if summand.exact_div(period) is None:
                kept.append(summand)
    constant = entry.constant
    if period.is_const:
        constant %= period.value
    return sum_of([*kept, constant])
