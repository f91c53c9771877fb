"""What a kernel costs, counted from what is fused: operations, bytes, and a name for reports."""

from __future__ import annotations

from collections.abc import Iterable

from luminal.algebra.sorts import MergedRuns
from luminal.algebra.terms import Term
from luminal.base.lines import Recorded
from luminal.kernel.fused import Fused
from luminal.shape.expression import Expression, Symbol, const, minimum


def points(axes: Iterable[Symbol]) -> Expression:
    """The number of points of a set of axes."""
    total = const(1)
    for axis in sorted(axes, key=lambda a: a.sort_key):
        assert axis.extent is not None
        total = total * axis.extent
    return total


def flops(fused: Fused) -> Expression:
    """Operations of one launch, each distinct value counted once per point of its axes."""
    total = const(0)
    for term in fused.terms:
        if term in fused.reads:
            continue
        # Conversions are no arithmetic: counted, a kernel of narrow dtypes would seem to compute
        # more than the same one of wide dtypes.
        if term.is_pointwise and term.op not in ("Cast", "Bitcast"):
            total = total + points(term.axes)
        elif term.is_reduction:
            total = total + points(term.axes | frozenset(term.attrs))
        elif term.op == "Scan":
            total = total + points(term.axes)
    return total


def bytes_moved(fused: Fused) -> Expression:
    """Bytes of the distinct operands and results of one launch, each once.

    Of an operand that is only read at chosen places, by an index or as a part of it, as many
    elements count as there are places, and no more than it has.
    """
    total = const(0)
    chosen = _places_read(fused)
    for term, place in fused.reads.items():
        size = minimum(place.size, chosen[term]) if term in chosen else place.size
        total = total + size * place.dtype.size
    for store in fused.stores:
        total = total + points(store.axes) * store.place.dtype.size
    return total


def _places_read(fused: Fused) -> dict[Term, Expression]:
    """How many places are read of each operand that is read through `At` alone."""
    inner = {term.args[0] for term in fused.terms if term.op == "At"}
    whole = {arg for term in fused.terms if term.op != "At" for arg in term.args}
    whole |= {arg for term in fused.terms if term.op == "At" for arg in term.args[1:]}
    whole |= {store.term for store in fused.stores}
    chosen: dict[Term, Expression] = {}
    for term in fused.terms:
        if term.op == "At" and term not in fused.reads and (term not in inner or term in whole):
            source = term.args[0]
            while source.op == "At" and source not in fused.reads:
                source = source.args[0]
            chosen[source] = chosen.get(source, const(0)) + points(term.axes)
    return {term: places for term, places in chosen.items() if term not in whole}


def label(fused: Fused) -> str:
    """What the kernel computes, by its operations from first to last: `Sum.Exp.Div`."""
    names: list[str] = []
    for term in fused.terms:
        if term in fused.reads or term.op in ("Literal", "Index", "At", "Leaf"):
            continue
        product = term.is_reduction and term.args[0].op == "Mul" and term.args[0].axes - term.axes
        name = "Contract" if product and _is_contraction(fused, term) else term.op
        name = "Merge" if term.is_opaque and isinstance(term.attrs.hlir, MergedRuns) else name
        if name not in names:
            names.append(name)
    if "Contract" in names and "Mul" in names:
        names.remove("Mul")
    return ".".join(names) or "Copy"


def origins(fused: Fused) -> tuple[Recorded, ...]:
    """Where what the kernel computes was recorded, operands first; of a copy, what it copies."""
    silent = ("Literal", "Index", "Leaf")
    computed = [t for t in fused.terms if t not in fused.reads and t.op not in silent]
    terms = computed or [root for store in fused.stores for root in store.roots]
    # By identity: to hash one hashes its line and names, for each term of each kernel.
    return tuple({id(t.recorded): t.recorded for t in terms if t.recorded is not None}.values())


def _is_contraction(fused: Fused, term: Term) -> bool:
    """Is the reduction a sum of products of values with different axes?"""
    (product,) = term.args
    if product in fused.reads or term.op != "Sum":
        return False
    a, b = product.args
    return bool(a.axes != b.axes)
