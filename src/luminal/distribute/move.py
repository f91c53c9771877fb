"""How a value comes to lie otherwise: views of a rank's part, and collectives between them.

A collective moves blocks of memory and nothing else, along the first dimension: all_gather puts
them one after the other, all_to_all hands each rank its own. Where a digit of a dimension goes is a
view before or after. Sums are added by kernels of our own, in the order of a balanced binary tree
over the ranks: all_to_all, the tree, all_gather. So the bits follow from the graph and the mesh,
whatever engine moves them. With `order="engine"` the engine adds, in an order of its own. Maxima
are the same in any order, and taken here: to some engines a NaN is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from luminal.base.dtypes import DType
from luminal.base.records import dataclass
from luminal.distribute.layout import (
    Cut,
    Cuts,
    Layout,
    by_axis,
    local_extent,
    nested,
    unit,
    with_digit,
    without_digit,
)
from luminal.distribute.mesh import Mesh
from luminal.distribute.partial import Partial
from luminal.hlir.attributes import CollectiveAttrs, Shape
from luminal.hlir.graph import Builder
from luminal.hlir.monoid import REDUCTIONS
from luminal.hlir.ops import Value
from luminal.hlir.sharding import sent
from luminal.shape.expression import ONE, TRUE, ZERO, Expression, ceil_div, product_of
from luminal.shape.view import index, made, pad, reshape

SMALL = 4096
"""Bytes up to which all parts are gathered and added by every rank: one collective, not two."""


class Lying(NamedTuple):
    """A value as a rank has it: its part, how it lies, and what is still to be reduced."""

    value: Value
    layout: Layout
    partial: Partial
    shape: Shape  # of the whole


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a value is moved, for the explanation: which value it is, and what asks for it."""

    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A row of the explanation: one collective of a rank's graph."""

    kind: str
    axis: str
    ranks: int
    shape: Shape
    dtype: DType
    reason: Reason
    trips: Expression = ONE

    @property
    def bytes(self) -> Expression:
        """The bytes that a rank sends, by the best algorithm for the kind."""
        return sent(self.kind, product_of(self.shape) * self.dtype.size, self.ranks)


@dataclass(slots=True)
class Mover:
    """Writes views and collectives with a Builder, and a row for each collective."""

    builder: Builder
    rows: list[Moved]
    mesh: Mesh
    order: str = "tree"
    turn: int = 0  # of the collectives that are written now
    trips: Expression = ONE

    def collective(
        self, x: Value, kind: str, cut: Cut, reason: Reason, reduction: str = "",
        pairs: tuple[tuple[int, int], ...] = (), turn: int | None = None,
    ) -> Value:  # fmt: skip
        """One collective of all ranks along the axis of a cut."""
        row = Moved(kind, cut.axis, cut.ranks, x.shape, x.dtype, reason, self.trips)
        self.rows.append(row)
        turn = self.turn if turn is None else turn
        attrs = CollectiveAttrs(kind, cut.axis, cut.ranks, reduction, pairs, turn, reason.value)
        return self.builder.make("Collective", (x,), attrs).value

    def view(
        self, x: Value, shape: Shape, indices: Sequence[Expression], domain: Expression = TRUE
    ) -> Value:
        """The view of this shape that reads `x` at `indices`."""
        return self.builder.view(x, made(x.shape, shape, indices, domain))

    def convert(self, x: Lying, wanted: Layout, reason: Reason) -> Lying:
        """The value as `wanted` says, nothing of it left to be reduced."""
        there = by_axis(wanted)
        for axis in list(x.partial):
            x = self.reduced(x, axis, there.get(axis), reason)
        here = by_axis(x.layout)
        # What is cut further goes first: less is left to be moved.
        for axis, (dimension, cut) in there.items():
            if axis not in here and _fits(x.layout[dimension], cut):
                x = self.sliced(x, dimension, cut)
        for axis, (dimension, cut) in here.items():
            target = there.get(axis)
            if target == (dimension, cut):
                continue
            if target is not None and self._can_exchange(x.layout, dimension, cut, *target):
                x = self.exchanged(x, dimension, cut, *target, reason)
            else:
                x = self.gathered(x, dimension, cut, reason)
        for axis, (dimension, cut) in there.items():
            if axis not in by_axis(x.layout):
                x = self.sliced(x, dimension, cut)
        assert x.layout == wanted, (x.layout, wanted)
        return x

    def _can_exchange(
        self, layout: Layout, dimension: int, cut: Cut, target: int, target_cut: Cut
    ) -> bool:
        return dimension != target and _fits(layout[target], target_cut)

    # --- one step

    def sliced(self, x: Lying, dimension: int, cut: Cut) -> Lying:
        """A rank's part of what it has: no collective."""
        cuts = nested([*x.layout[dimension], cut])
        assert cuts is not None
        block = unit(cuts, cuts.index(cut))
        here = x.value.shape[dimension]
        shape = _resized(x.value.shape, dimension, local_extent(x.shape[dimension], cuts))
        at = with_digit(_position(dimension, shape), block, cut.ranks, cut.place)
        indices = _indices(shape, x.value.shape, dimension, at)
        value = self.view(x.value, shape, indices, at < here)
        return x._replace(value=value, layout=_with(x.layout, dimension, cuts))

    def gathered(self, x: Lying, dimension: int, cut: Cut, reason: Reason) -> Lying:
        """The dimension with all its parts, on every rank."""
        joined = self.collective(x.value, "all_gather", cut, reason)
        return self._joined(joined, x.value.shape, x, dimension, cut)

    def _joined(self, parts: Value, part: Shape, x: Lying, dimension: int, cut: Cut) -> Lying:
        """What parts of this shape, one after the other along the first dimension, are together:
        the digit of the cut is put in again.
        """
        cuts = x.layout[dimension]
        block = unit(cuts, cuts.index(cut))
        left = tuple(other for other in cuts if other != cut)
        shape = _resized(part, dimension, local_extent(x.shape[dimension], left))
        position = _position(dimension, shape)
        digit = position // block % cut.ranks
        indices = _indices(shape, part, dimension, without_digit(position, block, cut.ranks))
        indices[0] = digit * part[0] + indices[0]
        value = self.view(parts, shape, indices)
        return x._replace(value=value, layout=_with(x.layout, dimension, left))

    def _parts(self, x: Lying, dimension: int, cut: Cut) -> tuple[Value, Shape, Layout]:
        """The parts that a cut would make, one after the other along the first dimension; and the
        shape and the layout of each.
        """
        cuts = nested([*x.layout[dimension], cut])
        assert cuts is not None
        block = unit(cuts, cuts.index(cut))
        here = x.value.shape[dimension]
        part = _resized(x.value.shape, dimension, local_extent(x.shape[dimension], cuts))
        shape = (part[0] * cut.ranks, *part[1:])
        indices = [_position(k, shape) for k in range(len(part))]
        rank, indices[0] = indices[0] // part[0], indices[0] % part[0]
        indices[dimension] = with_digit(indices[dimension], block, cut.ranks, rank)
        value = self.view(x.value, shape, indices, indices[dimension] < here)
        return value, part, _with(x.layout, dimension, cuts)

    def exchanged(
        self, x: Lying, dimension: int, cut: Cut, target: int, target_cut: Cut, reason: Reason
    ) -> Lying:
        """Cut along another dimension than before: each rank gives each other one a block."""
        parts, part, layout = self._parts(x, target, target_cut)
        moved = self.collective(parts, "all_to_all", cut, reason)
        return self._joined(moved, part, x._replace(layout=layout), dimension, cut)

    def reduced(self, x: Lying, axis: str, target: tuple[int, Cut] | None, reason: Reason) -> Lying:
        """The reduction along a mesh axis done: on every rank, or each rank's part of it."""
        reduction = x.partial[axis]
        left = {a: r for a, r in x.partial.items() if a != axis}
        if target is not None and _fits(x.layout[target[0]], target[1]):
            parts, _, layout = self._parts(x, *target)
            if self._is_engines(reduction):
                total = self.collective(parts, "reduce_scatter", target[1], reason, reduction)
            else:
                moved = self.collective(parts, "all_to_all", target[1], reason)
                total = self.tree(moved, target[1].ranks, reduction)
            return Lying(total, layout, left, x.shape)
        cut = Cut(axis, self.mesh.ranks(axis), ONE)
        total = self.all_reduced(x.value, cut, reduction, reason)
        return x._replace(value=total, partial=left)

    def all_reduced(self, x: Value, cut: Cut, reduction: str, reason: Reason) -> Value:
        """The reduction over all ranks of a mesh axis."""
        if self._is_engines(reduction):
            return self.collective(x, "all_reduce", cut, reason, reduction)
        count = product_of(x.shape)
        if count.is_const and count.value * x.dtype.size <= SMALL:
            row = self.builder.view(x, reshape(x.shape, (ONE, *x.shape)))
            gathered = self.collective(row, "all_gather", cut, reason)
            total = self.tree(gathered, cut.ranks, reduction)
            return self.builder.view(total, reshape(total.shape, x.shape))
        if x.shape[0].exact_div(cut.ranks) is not None:
            moved = self.collective(x, "all_to_all", cut, reason)
            return self.collective(
                self.tree(moved, cut.ranks, reduction), "all_gather", cut, reason
            )
        length = ceil_div(count, cut.ranks) * cut.ranks
        flat = self.builder.view(x, reshape(x.shape, (count,)))
        flat = self.builder.view(flat, pad((count,), [(0, length - count)]))
        moved = self.collective(flat, "all_to_all", cut, reason)
        total = self.collective(self.tree(moved, cut.ranks, reduction), "all_gather", cut, reason)
        position: Expression = ZERO
        for k, extent in enumerate(x.shape):
            position = position * extent + _position(k, x.shape)
        return self.view(total, x.shape, [position])

    def _is_engines(self, reduction: str) -> bool:
        return self.order == "engine" and reduction == "Sum"

    def tree(self, x: Value, ranks: int, reduction: str) -> Value:
        """Equal parts along the first dimension combined as a balanced binary tree."""
        combine = REDUCTIONS[reduction].combine
        part = x.shape[0].exact_div(ranks)
        assert part is not None, x.shape
        shape = (part, *x.shape[1:])
        inner = [_position(d, shape) for d in range(len(shape))]
        level = [self.view(x, shape, [part * k + inner[0], *inner[1:]]) for k in range(ranks)]
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=False)
            joined = [self.builder.apply(combine, a, b) for a, b in pairs]
            level = joined + level[len(joined) * 2 :]
        return level[0]


def _fits(cuts: Cuts, cut: Cut) -> bool:
    return nested([*cuts, cut]) is not None


def _position(dimension: int, shape: Shape) -> Expression:
    extent = shape[dimension]
    return ZERO if extent == ONE else index(dimension, extent)


def _indices(shape: Shape, source: Shape, dimension: int, at: Expression) -> list[Expression]:
    """The own position in all dimensions but one, which is read at `at`."""
    out = [_position(k, shape) for k in range(len(source))]
    out[dimension] = at
    return out


def _resized(shape: Shape, dimension: int, extent: Expression) -> Shape:
    return (*shape[:dimension], extent, *shape[dimension + 1 :])


def _with(layout: Layout, dimension: int, cuts: Cuts) -> Layout:
    return (*layout[:dimension], cuts, *layout[dimension + 1 :])
