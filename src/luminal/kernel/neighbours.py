"""Neighbours along a sum, which a dot multiplies together: where they lie, and along which axis.

A dot (`base/dots.py`) takes `k` neighbours of either factor at once, a word. Memory that keeps
them side by side is read a word at a time: panels of a weight whose innermost block they are, or
rows along the sum. The axis of the sum is then walked in steps of k: a loop of words, and in it one
that is bound to neighbours.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from luminal.algebra.terms import Axes, Term
from luminal.base.dots import Dot
from luminal.base.dtypes import DType
from luminal.kernel.fused import Fused, Place
from luminal.kernel.guards import is_mask
from luminal.kernel.layout import ROW_MAJOR, Layout
from luminal.kernel.source import Source, sources_of
from luminal.shape.expression import ONE, ZERO, Expression, Symbol


def with_neighbours(panels: Layout, along: int, count: int) -> Layout:
    """Panels that keep so many neighbours along a dimension together, innermost."""
    return replace(panels, blocks=(*panels.blocks, (along, count)))


def last_axis(dimension: Axes, count: int) -> Symbol | None:
    """The axis along which a dimension's neighbours lie, if it is made of whole words."""
    return next((a for a in dimension[-1:] if _is_whole(a, count)), None)


def _is_whole(axis: Symbol, count: int) -> bool:
    extent = axis.extent
    return extent is not None and extent.is_const and extent.value % count == 0


def refusal(contraction: Term, dot: Dot, reads: Mapping[Term, Place]) -> str | None:
    """Why a kernel that reads these places cannot compute it by a dot; None if it can.

    Both factors must lie in memory as what the dot takes, and be summed along an axis of whole
    words. Neighbours that lie apart in a factor are joined as they are read, or packed. Those of a
    dot that lanes compute together are copied to where it takes them, so they may be computed, and
    edges are masked in the copy.
    """
    if dot.is_matrix:
        return _no_matrices(contraction, dot, reads)
    axis = _walked(contraction, dot, reads)
    return axis if isinstance(axis, str) else None


def in_order(factors: Sequence[Term], dot: Dot) -> Sequence[Term]:
    """The factors as a dot takes them: where it tells them apart, by what they are cast from."""
    turned = multiplied(factors[0], dot) is dot.b is not dot.a
    return factors[::-1] if turned else factors


def multiplied(factor: Term, dot: Dot | None) -> DType:
    """The dtype as which a factor is multiplied: by a dot what is below its Cast."""
    if dot is None:
        return factor.dtype
    if dot.is_matrix:
        return dot.a
    while factor.op == "At":
        factor = factor.args[0]
    return factor.args[0].dtype if factor.op == "Cast" else factor.dtype


def walked(fused: Fused) -> Mapping[Term, Symbol]:
    """The axis along which neighbours are multiplied together, of each contraction by a dot of
    words.
    """
    axes: dict[Term, Symbol] = {}
    for term, dot in fused.dots.items():
        if dot.is_matrix:
            continue
        axis = _walked(term, dot, fused.reads)
        assert not isinstance(axis, str), f"{term!r} is not computed by {dot}: {axis}"
        axes[term] = axis
    return axes


def copied(fused: Fused) -> tuple[Symbol, int] | None:
    """The axis along which a kernel that copies a value into panels keeps neighbours together, and
    how many of them; None if it does not.
    """
    store = fused.stores[0]
    count = store.place.layout.neighbours
    if len(fused.stores) > 1 or count == 1 or store.term not in fused.reads:
        return None
    source = fused.reads[store.term]
    if source.frame != store.frame or store.index is not None:
        return None
    inner = _inner(store.place, count)
    return None if inner is None or _inner(source, count) is not inner else (inner, count)


def word_offset(offset: Expression, near: Symbol, count: int) -> Expression | None:
    """The word that the neighbours along an axis lie in, by its number; None where they do not lie
    side by side, or not in whole words.
    """
    if offset.coefficient(near) is not ONE:
        return None
    # By the algebra of Expressions: the offset of the first neighbour has to be a multiple of the
    # word for all values of the dims.
    first = offset.substitute({near: ZERO})
    word = first // count
    return word if word * count is first else None


def below_cast(factor: Term, dtype: DType, reads: Container[Term]) -> Term | None:
    """What of this dtype a factor is, but for where it is evaluated and 0 at masked positions:
    itself, or what it is cast from; None if it is anything else.
    """
    while factor.dtype is not dtype and factor not in reads:
        if factor.op == "Cast" and factor.args[0].dtype is dtype:
            return factor.args[0]
        if factor.op != "At" and not is_mask(factor):
            return None
        factor = factor.args[1 if is_mask(factor) else 0]
    return factor if factor.dtype is dtype else None


def in_blocks(factor: Term, dot: Dot) -> tuple[Term, Term] | None:
    """The codes and the scales that a factor is the product of, as a dot with scales multiplies
    them; None if it is anything else.
    """
    if factor.op != "Mul":
        return None
    for pair in (factor.args, factor.args[::-1]):
        if all(arg.op == "Cast" for arg in pair):
            codes, scales = (arg.args[0] for arg in pair)
            if codes.dtype in dot.codes and scales.dtype is dot.scale and scales.axes < codes.axes:
                return codes, scales
    return None


def shared_axes(contraction: Term, dot: Dot) -> Axes | None:
    """The axes of a sum along which both factors keep their scales, whole blocks of a dot; None
    where its factors have no such scales.
    """
    blocks = [in_blocks(factor, dot) for factor in contraction.args[0].args]
    scales = [block[1].axes for block in blocks if block is not None]
    if len(scales) < len(blocks):
        return None
    axes = tuple(a for a in contraction.attrs if not any(a in held for held in scales))
    extents = [a.extent for a in axes]
    if not all(extent is not None and extent.is_const for extent in extents):
        return None
    count = prod(extent.constant for extent in extents if extent is not None)
    return axes if count % (dot.block * dot.values) == 0 else None


def _no_matrices(contraction: Term, dot: Dot, reads: Container[Term]) -> str | None:
    """Why it is no product of matrices for a dot; None if it is."""
    if contraction.op != "Sum" or contraction.dtype is not dot.accumulator:
        return f"it is a {contraction.op} of {contraction.dtype}"
    (product,) = contraction.args
    if product.op != "Mul" or product in reads:
        return "what it sums is no product of its own"
    if dot.scale is not None:
        if any(factor in reads for factor in product.args) or shared_axes(contraction, dot) is None:
            return f"its factors are no blocks with scales of {dot.scale}"
    elif any(below_cast(factor, dot.a, reads) is None for factor in product.args):
        return f"its factors are no {dot.a}"
    a, b = (factor.axes - {*contraction.attrs} for factor in product.args)
    return None if a - b and b - a else "one of its factors has all of its rows and columns"


def _walked(contraction: Term, dot: Dot, reads: Mapping[Term, Place]) -> Symbol | str:
    """The axis along which neighbours lie; or why there is none."""
    if contraction.op != "Sum" or contraction.dtype is not dot.accumulator:
        return f"it is a {contraction.op} of {contraction.dtype}"
    (product,) = contraction.args
    if product.op != "Mul" or product in reads:
        return "what it sums is no product of its own"
    sources_read: list[tuple[Source, Place]] = []
    for factor, dtype in zip(in_order(product.args, dot), (dot.a, dot.b), strict=True):
        sources = sources_of(factor, reads.__contains__)
        in_memory = [(x, reads[x.term]) for x in sources if x.casts == 1 and x.term in reads]
        if (
            not in_memory
            or len(in_memory) < len(sources)
            or any(x.dtype is not dtype for _, x in in_memory)
        ):
            return f"the factor {factor!r} is no {dtype} in memory"
        sources_read += in_memory
    # Both factors have to walk the axis, or a word of one would meet a single number of the other.
    shared = frozenset.intersection(*(factor.axes for factor in product.args))
    shared = shared.difference(*(source.apart for source, _ in sources_read))
    able = [a for a in contraction.attrs if a in shared and _is_whole(a, dot.k)]
    if not able:
        return f"no axis of the sum is made of whole words of {dot.k}"
    inner = [source.names.get(a, a) for source, a in _side_by_side(sources_read, dot.k)]
    # The axis along which the most factors have their words as they lie: the others are joined on
    # reading.
    best: Symbol = max(able, key=inner.count)
    return best


def _side_by_side(
    factors: Sequence[tuple[Source, Place]], count: int
) -> Iterator[tuple[Source, Symbol]]:
    """The factors that have neighbours side by side, and along which of their axes."""
    for source, place in factors:
        axis = _inner(place, count)
        if axis is not None:
            yield source, axis


def _inner(place: Place, count: int) -> Symbol | None:
    """The axis whose neighbours lie side by side, in words of so many."""
    if place.layout.neighbours == count:
        return last_axis(place.frame[place.layout.blocks[-1][0]], count)
    is_plain = place.frame and place.layout == ROW_MAJOR
    return last_axis(place.frame[-1], count) if is_plain else None
