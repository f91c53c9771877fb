"""The numbers behind the rules of `fast`, in units of about one simple vector instruction."""

from __future__ import annotations

from collections.abc import Iterable

from luminal.algebra.lower import Root
from luminal.algebra.terms import Term

LOAD = 4  # weight of a load; of operations: as below, else 1
WEIGHTS = {"Div": 4, "Sqrt": 4, "Recip": 4, "FloorDiv": 8, "Mod": 8} | dict.fromkeys(
    ("Exp", "Log", "Exp2", "Log2", "Sin", "Cos"), 10
)
KERNEL_TERMS = 300  # terms inlined in one kernel: bounds code size and recursion
MERGED = 16  # stored values computed in one kernel: as many streams as a core keeps open
REACH = 1000  # terms or kernels looked at for one merge or pass: keeps a compile's time linear
FEW_POINTS = 16  # grid points below which a reduction would leave threads idle
MUCH_WORK = 1 << 16  # elements read by a reduction from which idle threads matter
LAUNCH_WORK = 1 << 14  # operations that cost about as much as one more launch
ROW_BYTES = 1 << 18  # largest local row: stays in the second-level cache
NEEDS_BUFFERS = ("Sort", "Loop", "Custom")  # opaque terms that read whole buffers


def leaves_idle(points: int, work: int) -> bool:
    """Would a reduction of `work` elements to so few points leave threads idle that it matters?"""
    return points < FEW_POINTS and work > MUCH_WORK


def is_contraction(reduction: Term) -> bool:
    """Is it a sum of products of values with different axes?"""
    (x,) = reduction.args
    return reduction.op == "Sum" and x.op == "Mul" and len({factor.axes for factor in x.args}) > 1


def is_product(reduction: Term) -> bool:
    """Is it a contraction with results along axes of either factor alone: rows and columns?"""
    if not is_contraction(reduction):
        return False
    a, b = (factor.axes & reduction.axes for factor in reduction.args[0].args)
    return bool(a - b) and bool(b - a)


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
            forced.add(term.args[0])
        if term.op == "After":
            forced.add(term.args[0])
        elif term.op in NEEDS_BUFFERS:
            forced.update(arg for arg in term.args if not (term.op == "Loop" and _is_part(arg)))
    return forced


FEW = 8  # reductions


def _results(term: Term, results: dict[Term, frozenset[Term]]) -> frozenset[Term]:
    if term.is_reduction:
        return frozenset((term,))
    if not term.is_pointwise:
        return frozenset()
    found = frozenset[Term]().union(*(results[arg] for arg in term.args))
    return found if len(found) <= FEW else frozenset()


def _is_result(term: Term, results: dict[Term, frozenset[Term]]) -> bool:
    own = results[term]
    return term.is_pointwise and len(own) > 1 and any(r.axes == term.axes for r in own)


def _is_part(term: Term) -> bool:
    """Slices of what is stored as it is: a Loop reads those where they lie, or copies them."""
    base = term.args[0] if term.op == "At" and len(term.args) == 1 else None
    return base is not None and (base.is_leaf or base.is_opaque)
