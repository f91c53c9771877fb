"""Products that share a factor run along the same columns, where a genome wants them in one kernel.

`B = Sum{k} x[m, k] v[k, j]` becomes `At(C, {n: j})` with `C = Sum{k} x[m, k] v[k, n]`, where n are
the columns of another product of x, as many: then both have one grid, and one loop over their
register tiles reads x once. Names of axes change, values do not: what reads B reads C at j.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from luminal.algebra.terms import Axes, Reduction, Term, axis_order
from luminal.selection.rewrite import Respelled
from luminal.selection.split import factors_at
from luminal.shape.expression import Symbol


def columns(one: Term, other: Term) -> dict[Symbol, Symbol] | None:
    """The axes of `one` that `other` lacks, each as one of those that only `other` has, in order;
    None where there are not as many of the same extents, or a reduction of `one` takes them.
    """
    # Only names of axes change, so this is always legal; the check is whether the loops would
    # really be the same ones, extent by extent.
    if not isinstance(one, Reduction) or not isinstance(other, Reduction):
        return None
    axes_of_one, wanted = (_rest(a, b) for a, b in ((one, other), (other, one)))
    inside = one.args[0].axes | frozenset(one.attrs)
    if [a.extent for a in axes_of_one] != [a.extent for a in wanted] or not inside.isdisjoint(
        wanted
    ):
        return None
    return dict(zip(axes_of_one, wanted, strict=True))


def _rest(one: Term, other: Term) -> Axes:
    return axis_order(one.axes - other.axes)


# Keys and values are products of one x with columns of their own, as many of each. Given the same
# axis they have one grid, so that one register tile can serve both: x is then loaded once.
def share_columns(
    program: Respelled, pairs: Iterable[tuple[Term, Term]]
) -> tuple[Respelled, Mapping[Term, Term]]:
    """The program with the first of each pair along the columns of the second, where that is legal,
    and by such a first term the one that is stored in its place.
    """
    roots = {root.term for root in program.lowered.roots}  # lie as their sinks want
    wanted: dict[Term, dict[Symbol, Symbol]] = {}
    for one, other in pairs:
        renaming = columns(one, other)
        if renaming and one not in roots and one not in wanted and other not in wanted:
            wanted[one] = renaming
    terms, stored = program.lowered.terms, dict[Term, Term]()
    if not wanted:
        return program, stored

    def replace(old: Term, same: Term) -> Term:
        if old not in wanted or not isinstance(same, Reduction):
            return same
        renamed = wanted[old]
        x = factors_at(terms, same.args[0], renamed)
        stored[old] = terms.reduce(same.op, same.attrs, x, merge=False)
        return terms.at(stored[old], {new: was for was, new in renamed.items()})

    return program.rewrite(replace), stored
