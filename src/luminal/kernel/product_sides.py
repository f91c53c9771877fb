"""Which kernels are products of matrices, whatever they compute of them, and what their sides are.

Every contraction is such a product: the axes that one factor alone has are its rows, those of the
other the columns, those of both tell products of a batch apart, and those that are summed are one
long sum. A convolution is one over positions that its expression is evaluated at.
"""

from __future__ import annotations

from luminal.algebra.terms import Reduction, Term, below
from luminal.base.dots import Dot
from luminal.base.dtypes import bool_
from luminal.base.records import dataclass
from luminal.kernel.fused import Fused
from luminal.kernel.loops import LoopAxis, loop_axes
from luminal.kernel.neighbours import shared_axes
from luminal.shape.expression import Symbol


@dataclass(frozen=True, slots=True)
class Sides:
    """A kernel that is products over the same axes: of each reduction `factors` gives the one with
    the rows, then the one with the columns. Axes are in the order of loops, innermost last.
    """

    fused: Fused
    batch: tuple[LoopAxis, ...]
    rows: tuple[LoopAxis, ...]
    columns: tuple[LoopAxis, ...]
    summed: tuple[LoopAxis, ...]
    factors: tuple[tuple[Term, Term], ...]

    @property
    def kept(self) -> list[tuple[int, Term]]:
        """The factors, each once, with the side (0: rows, 1: columns) they lie on."""
        pairs = [(side, pair[side]) for pair in self.factors for side in (0, 1)]
        return list(dict.fromkeys(pairs))

    @property
    def dot(self) -> Dot | None:
        """The dot that lanes can compute all of the products by together: along the innermost axes
        of the sum, if factors have scales.
        """
        dots = {self.fused.dots.get(reduction) for reduction in self.fused.reductions}
        (dot,) = dots if len(dots) == 1 else (None,)
        if dot is None or not dot.is_matrix:
            return None
        members = [a for loop in self.summed for a in loop.members]
        for reduction in self.fused.reductions if dot.scale is not None else ():
            inner = shared_axes(reduction, dot)
            if inner is None or {*members[-len(inner) :]} != {*inner}:
                return None
        return dot

    def short(self, factor: Term) -> Term:
        """A factor, or the 16-bit floats that it is widened from."""
        if factor.op != "Cast" or factor in self.fused.reads:
            return factor
        (narrow,) = factor.args
        return narrow if narrow.dtype.is_storage and factor.dtype.is_float else factor


def sides_of(fused: Fused) -> Sides | None:
    """The products that a kernel is, whatever it computes of them; None if it is anything else."""
    reductions = fused.reductions
    moved = any(store.index is not None or store.add for store in fused.stores)
    if moved or not reductions or not all(_is_product(r, fused) for r in reductions):
        return None
    bound = set(reductions[0].attrs)
    if any(set(r.attrs) != bound for r in reductions):
        return None
    axes = loop_axes(fused)
    stored = [a for x in axes for a in x.members if a not in bound]
    if any(set(store.axes) != set(stored) for store in fused.stores):
        return None
    first = reductions[0].args[0]
    sides = [{*x.axes} - y.axes - bound for x, y in (first.args, first.args[::-1])]
    last = next((a for a in reversed(stored) if a in sides[0] | sides[1]), None)
    rows, columns = sides if last not in sides[0] else sides[::-1]  # results lie along the columns
    if not rows or not columns:
        return None
    factors = []
    for reduction in reductions:
        pair = _in_order(reduction, rows, columns)
        if pair is None:
            return None
        factors.append(pair)

    def among(members: set[Symbol]) -> tuple[LoopAxis, ...]:
        return tuple(x for x in axes if x.members[0] in members)

    batch = set(stored) - rows - columns
    return Sides(fused, among(batch), among(rows), among(columns), among(bound), tuple(factors))


def _is_product(reduction: Reduction, fused: Fused) -> bool:
    """Is it a sum of products that are computed here, of values that wait for no other sum?"""
    product = reduction.product
    if product is None or product in fused.reads or product.dtype is bool_:
        return False
    if product.dtype is not reduction.dtype or product.dtype.is_storage:
        return False
    operands = below(product.args, fused.reads.__contains__)
    return not any(t.is_reduction and t not in fused.reads for t in operands)


def _in_order(
    reduction: Reduction, rows: set[Symbol], columns: set[Symbol]
) -> tuple[Term, Term] | None:
    """The factors, if one has these rows and the other these columns."""
    x, y = reduction.args[0].args
    bound = set(reduction.attrs)
    for a, b in ((x, y), (y, x)):
        if a.axes - b.axes - bound == rows and b.axes - a.axes - bound == columns:
            return a, b
    return None
