"""How a value lies on ranks: which digit of which dimension is the rank's own coordinate.

A cut is a digit. The position along a dimension is a mixed-radix number, and a cut over P ranks
takes the digit of weight `block` away: rank r holds the positions i with `i // block % P == r`.
With `block = n / P` these are P parts one after the other; a smaller block is what remains of a cut
when dimensions are merged, as heads are in front of a product. So one record says all that
reshapes, transposes and grouped heads can make of a cut, and positions of the whole and of the part
are made of each other by arithmetic that Expressions already simplify.

Where an extent is no multiple of a cut's period, the dimension is padded to the next one: the last
ranks hold fewer positions of the value, and pads after them. A pad may hold anything. Whoever would
mix pads with the value reads through a View that is 0 there (`project`), so a pad is never seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from luminal.base.errors import ShapeError
from luminal.distribute.mesh import Mesh, Spec, dealt
from luminal.hlir.attributes import Shape
from luminal.hlir.sharding import coordinate
from luminal.shape.condition import linear_form
from luminal.shape.expression import (
    Expression,
    all_of,
    ceil_div,
    const,
    maximum,
    minimum,
    product_of,
    sum_of,
)
from luminal.shape.view import index


class Cut(NamedTuple):
    """The digit of weight `block` of a position, one of `ranks`, is the coordinate along `axis`."""

    axis: str
    ranks: int
    block: Expression

    @property
    def place(self) -> Expression:
        """The digit that a rank has: its own coordinate, or that of a rank `ahead`."""
        axis, _, places = self.axis.partition(AHEAD)
        digit = coordinate(axis, self.ranks)
        return (digit + int(places)) % self.ranks if places else digit

    @property
    def period(self) -> Expression:
        """The positions after which the ranks begin anew."""
        return self.block * self.ranks

    def __str__(self) -> str:
        return f"{self.axis}/{self.block}"


AHEAD = ">"


def ahead(axis: str, places: int) -> str:
    """What stands for a mesh axis in a cut that is as the rank so many places ahead has it."""
    return f"{axis}{AHEAD}{places}"


Cuts = tuple[Cut, ...]
"""The cuts of one dimension, the outermost first."""
Layout = tuple[Cuts, ...]
"""The cuts of a value, dimension by dimension."""


def whole(rank: int) -> Layout:
    """The layout of a value that every rank has as a whole."""
    return ((),) * rank


def by_axis(layout: Layout) -> dict[str, tuple[int, Cut]]:
    """The dimension and the cut of each mesh axis in a layout."""
    return {cut.axis: (k, cut) for k, cuts in enumerate(layout) for cut in cuts}


def of_axes(rank: int, cuts: Mapping[str, tuple[int, Cut]]) -> Layout:
    """The layout of cuts that are given by mesh axis."""
    out: list[list[Cut]] = [[] for _ in range(rank)]
    for dimension, cut in cuts.values():
        out[dimension].append(cut)
    return tuple(nested(cuts) or () for cuts in out)


def nested(cuts: Iterable[Cut]) -> Cuts | None:
    """The cuts of one dimension from the outermost in; None where two overlap."""
    ordered: list[Cut] = []
    for cut in cuts:
        place = len(ordered)
        for k, other in enumerate(ordered):
            if other.block.exact_div(cut.period) is None:
                # `cut` is not inside of `other`, so it must be around it.
                if cut.block.exact_div(other.period) is None:
                    return None
                place = min(place, k)
        ordered.insert(place, cut)
    return tuple(ordered)


def of_spec(spec: Spec, shape: Shape, mesh: Mesh, what: str) -> Layout:
    """The layout that a spec means on a mesh: equal parts, one after the other or dealt out in
    blocks, the last with pads where a literal extent does not divide.

    Raises ShapeError where the mesh lacks an axis or an extent with dims in it does not divide.
    """
    layout: list[Cuts] = []
    for k, (names, extent) in enumerate(zip(spec, shape, strict=True)):
        total = math.prod(mesh.ranks(dealt(name)[0], what) for name in names)
        block = extent.exact_div(total)
        if extent.is_const:
            block = ceil_div(maximum(extent, 1), total)
        if block is None:
            raise ShapeError(
                f"{what}: dimension {k} of {extent} is cut over the {total} ranks of "
                f"{' and '.join(map(repr, names))}, which do not divide it; only literal extents "
                "are padded: make it one, or cut another dimension"
            )
        cuts: list[Cut] = []
        for entry in reversed(names):
            name, size = dealt(entry)
            ranks = mesh.ranks(name)
            if size is not None and (len(names) > 1 or not extent.is_const):
                _check_dealt(block, size, f"{what}: {entry!r} of dimension {k} of {extent}")
            if ranks > 1:
                cuts.insert(0, Cut(name, ranks, block if size is None else const(size)))
            block = block * ranks
        layout.append(tuple(cuts))
    return tuple(layout)


def _check_dealt(part: Expression, block: int, what: str) -> None:
    if part.exact_div(block) is None:
        raise ShapeError(
            f"{what} has {part} positions a rank, which are no blocks of {block}; deal out as "
            "many as divide them"
        )


def local_extent(extent: Expression, cuts: Cuts) -> Expression:
    """How many positions of a dimension a rank has room for, pads among them."""
    part = with_pads(extent, cuts).exact_div(product_of(cut.ranks for cut in cuts))
    assert part is not None, (extent, cuts)
    return part


def with_pads(extent: Expression, cuts: Cuts) -> Expression:
    """The extent with the pads that its cuts ask for."""
    if not (cuts and extent.is_const and cuts[0].block.is_const):
        return extent
    period = cuts[0].period
    return ceil_div(extent, period) * period


def has_pads(extent: Expression, cuts: Cuts) -> bool:
    """Does a rank hold pads behind its positions of the dimension?"""
    return with_pads(extent, cuts) != extent


def fits(extent: Expression, cut: Cut) -> bool:
    """Can a dimension of this extent be cut so, with no part larger than the whole?"""
    if extent.exact_div(cut.period) is not None:
        return True
    return extent.is_const and cut.block.is_const and 0 < cut.block.value <= extent.value


def is_outermost(extent: Expression, cut: Cut) -> bool:
    """Does the cut make of the dimension one part for each rank, one after the other?"""
    return with_pads(extent, (cut,)) == cut.period


def is_real(shape: Shape, layout: Layout, dimensions: Iterable[int]) -> Expression:
    """Where in a rank's part no pads of these dimensions are: an Expression of its indices."""
    conditions = []
    for k in dimensions:
        if has_pads(shape[k], layout[k]):
            part = local_extent(shape[k], layout[k])
            part_index = const(0) if part == const(1) else index(k, part)
            conditions.append(to_global(part_index, layout[k]) < shape[k])
    return all_of(conditions)


def in_unit_steps(condition: Expression) -> Expression:
    """A condition on positions, where it can be, in steps of 1: `2 * i <= 2 * j + 1` is `i <= j`.

    Positions that are dealt out have such steps, and loops end only where a condition has none.
    """
    parts = []
    for part in condition.args if condition.op == "and" else (condition,):
        if part.op not in ("le", "lt"):
            return condition
        slack = linear_form(part)  # the part holds where this is >= 0
        steps = {s: slack.coefficient(s) for s in slack.symbols() if s.extent is not None}
        factors = [step.value for step in steps.values() if step is not None and step.is_const]
        common = math.gcd(*factors)
        if len(factors) == len(steps) and common > 1:
            rest = slack - sum_of([s * f for s, f in zip(steps, factors, strict=True)])
            lo, hi = rest.interval.lo, rest.interval.hi
            if lo is not None and hi is not None and hi < (lo // common + 2) * common:
                # The quotient has two values, so it is one without a division, which conditions
                # would multiply out again.
                least = lo // common
                quotient = least + minimum(maximum(rest - ((least + 1) * common - 1), 0), 1)
                scaled = [s * (f // common) for s, f in zip(steps, factors, strict=True)]
                part = sum_of([*scaled, quotient]) >= 0
        parts.append(part)
    return all_of(parts)


def local_shape(shape: Shape, layout: Layout) -> Shape:
    """The shape of a rank's part."""
    return tuple(local_extent(n, cuts) for n, cuts in zip(shape, layout, strict=True))


def unit(cuts: Cuts, place: int) -> Expression:
    """The weight of the cut digit `place` when all cuts inside of it have been taken out."""
    inner = 1
    for cut in cuts[place + 1 :]:
        inner *= cut.ranks
    out = cuts[place].block.exact_div(inner)
    assert out is not None, cuts
    return out


def without_digit(position: Expression, block: Expression, ranks: int) -> Expression:
    """The position with the digit of weight `block`, one of `ranks`, taken out."""
    return position // (block * ranks) * block + position % block


def with_digit(
    position: Expression, block: Expression, ranks: int, digit: Expression
) -> Expression:
    """The position with a digit of weight `block`, one of `ranks`, put in."""
    return position // block * (block * ranks) + digit * block + position % block


def to_local(position: Expression, cuts: Cuts) -> Expression:
    """Where in its part a rank has a position that it holds."""
    for place in reversed(range(len(cuts))):
        position = without_digit(position, unit(cuts, place), cuts[place].ranks)
    return position


def to_global(position: Expression, cuts: Cuts) -> Expression:
    """Which position of the whole stands at a position of a rank's part."""
    for place, cut in enumerate(cuts):
        position = with_digit(position, unit(cuts, place), cut.ranks, cut.place)
    return position


def positions(shape: Shape, layout: Layout) -> dict[Expression, Expression]:
    """For the index of each dimension of the whole, the Expression of it in a part's indices."""
    out: dict[Expression, Expression] = {}
    for k, (extent, cuts) in enumerate(zip(shape, layout, strict=True)):
        if cuts:
            part = local_extent(extent, cuts)
            part_index = const(0) if part == const(1) else index(k, part)
            out[index(k, extent)] = to_global(part_index, cuts)
    return out


def text(layout: Sequence[Cuts]) -> str:
    """A layout for people: `[data, ., tensor]`."""
    return f"[{', '.join('+'.join(cut.axis for cut in cuts) or '.' for cuts in layout)}]"
