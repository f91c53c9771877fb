"""What no rule leaves unstored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from luminal.algebra.frames import upper
from luminal.algebra.lower import Root
from luminal.algebra.terms import Term
from luminal.base.costs import Costs
from luminal.base.dots import Dot
from luminal.base.dtypes import int8, uint8
from luminal.kernel.neighbours import in_blocks
from luminal.kernel.source import source_of
from luminal.selection.kinds import is_contraction

NEEDS_BUFFERS = ("Sort", "Loop", "Custom", "Collective")  # opaque terms that read whole buffers
BYTES = (int8, uint8)
GROUPS = 16  # for each unit, between which it waits for none
FEW = 8  # reductions that a value is computed of, as far as they are looked at


def stored_anyway(roots: Iterable[Root], order: Iterable[Term]) -> set[Term]:
    """Terms that no rule leaves unstored: the program's roots, what is read as a buffer, and what
    is read at other positions, if it is computed of several reductions and no larger than one:
    else all these were stored.
    """
    forced = {root.term for root in roots}
    results: dict[Term, frozenset[Term]] = {}  # reductions that a value is computed of, if few
    for term in order:
        results[term] = _results(term, results)
        if term.op == "At" and _is_result(term.args[0], results):
            forced.add(below_widening(term.args[0]))
        if term.op == "After":
            forced.add(term.args[0])
        elif term.op in NEEDS_BUFFERS:
            forced.update(arg for arg in term.args if not (term.op == "Loop" and _is_part(arg)))
    return forced


# Rounding is cheap, so by cost alone it would be done in each load, of float32 in memory; but no
# dot of words takes what is not in memory as it multiplies it. So the kernel that makes the value
# stores it rounded. Packed weights are the exception where matrices are multiplied: lanes copy
# those anyhow, and decode them as they do.
def rounded_factors(
    order: Iterable[Term],
    packed: Set[Term] = frozenset(),
    decoded_rows: int = 0,
    scaled: Sequence[Dot] = (),
) -> set[Term]:
    """What products read as a narrower float than they are summed in, or as bytes, again for every
    result that shares it: stored once, rounded, its bytes are half or a quarter and a dot can take
    them as they lie. So are codes and scales where there are `scaled` dots. Not what is `packed`,
    for so many results that share it (`Costs`).
    """
    rounded: set[Term] = set()
    for term in order:
        if not term.is_reduction or not is_contraction(term):
            continue
        for factor in term.args[0].args:
            blocks = next(filter(None, (in_blocks(factor, dot) for dot in scaled)), ())
            rounded.update(x for x in blocks if not x.is_leaf and x not in packed)
            source = source_of(factor, is_narrowing) if term.axes - factor.axes else None
            if source is None or source.casts != 1 or not is_narrowing(source.term):
                continue
            if source.term not in packed or upper(term.axes - factor.axes) > decoded_rows:
                rounded.add(source.term)
    return rounded


# Gradients of rounded products are widened to be added up, and rounded by the next product: as
# float32 no dot would take them, and they were twice as large.
def below_widening(term: Term) -> Term:
    """What is stored of a value that others need: what it is cast from, where that is a float of
    fewer bytes which is computed.
    """
    if term.op != "Cast" or not term.dtype.is_float:
        return term
    (narrow,) = term.args
    is_computed = narrow.is_pointwise or narrow.is_reduction
    fewer = narrow.dtype.is_float and narrow.dtype.size < term.dtype.size
    return narrow if is_computed and fewer else term


# As the parts of a channel's sum before a picture is normalised: a launch is saved, and then the
# picture is shared out by channels alone, a group for each.
def is_beside(term: Term, root: Term, costs: Costs) -> bool:
    """Does a reduction read little beside what its kernel stores, for which its results are too few
    to be shared out by them?
    """
    points, stored = upper(term.axes), upper(root.axes)
    work = max(points * upper(term.attrs), costs.shares.work)
    return costs.expansion * work <= stored and points < GROUPS * costs.shares.points


def is_rounded_result(term: Term, users: Mapping[Term, Sequence[Term]]) -> bool:
    """Is it all that is read of a reduction, which several kernels would read with more bytes?"""
    return is_narrowing(term) and term.args[0].is_reduction and users[term.args[0]] == [term]


def is_narrowing(term: Term) -> bool:
    """Does it round floats to fewer bytes, or make bytes of them?"""
    if term.op != "Cast":
        return False
    (wide,) = term.args
    both_float = term.dtype.is_float and wide.dtype.is_float
    return (both_float or term.dtype in BYTES) and term.dtype.size < wide.dtype.size


def _results(term: Term, results: dict[Term, frozenset[Term]]) -> frozenset[Term]:
    if term.is_reduction:
        return frozenset((term,))
    if not term.is_pointwise:
        return frozenset()
    reductions = frozenset[Term]().union(*(results[arg] for arg in term.args))
    return reductions if len(reductions) <= FEW else frozenset()


def _is_result(term: Term, results: dict[Term, frozenset[Term]]) -> bool:
    reductions = results[term]
    return (
        term.is_pointwise and len(reductions) > 1 and any(r.axes == term.axes for r in reductions)
    )


def _is_part(term: Term) -> bool:
    """Slices of what is stored as it is: a Loop reads those where they lie, or copies them."""
    base = term.args[0] if term.op == "At" and len(term.args) == 1 else None
    return base is not None and (base.is_leaf or base.is_opaque)
