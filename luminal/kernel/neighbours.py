"""Neighbours along a sum, which a dot multiplies together: where they lie, and along which axis.

A dot (`luminal/dots.py`) takes `k` neighbours of either factor at once, a word. Memory that keeps
them side by side is read a word at a time: panels of a weight whose innermost block they are, or
rows along the sum. The axis of the sum is then walked in steps of k: a loop of words, and in it one
that is bound to neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from luminal.algebra.terms import Axes, Term
from luminal.dots import Dot
from luminal.kernel.group import Group, Place
from luminal.kernel.layout import ROW_MAJOR, Layout
from luminal.kernel.source import source_of
from luminal.shape.expression import ONE, ZERO, Expression, Symbol


def with_neighbours(panels: Layout, along: int, count: int) -> Layout:
    """Panels that keep so many neighbours along a dimension together, innermost."""
    return replace(panels, blocks=(*panels.blocks, (along, count)))


def last_axis(dimension: Axes, count: int) -> Symbol | None:
    """The axis along which a dimension's neighbours lie, if it is made of whole words."""
    for symbol in dimension[-1:]:
        extent = symbol.extent
        if extent is not None and extent.is_const and extent.value % count == 0:
            return symbol
    return None


def refusal(contraction: Term, dot: Dot, reads: Mapping[Term, Place]) -> str | None:
    """Why a kernel that reads these places cannot compute it by a dot; None if it can.

    Both factors must lie in memory as the dot takes them, one of them in panels of neighbours, and
    neighbours along one summed axis side by side in either.
    """
    found = _walked(contraction, dot, reads)
    return found if isinstance(found, str) else None


def walked(group: Group) -> Mapping[Term, Symbol]:
    """The axis along which neighbours are multiplied together, of each contraction by a dot."""
    found: dict[Term, Symbol] = {}
    for term, dot in group.dots.items():
        axis = _walked(term, dot, group.reads)
        assert not isinstance(axis, str), f"{term!r} is not computed by {dot}: {axis}"
        found[term] = axis
    return found


def copied(group: Group) -> tuple[Symbol, int] | None:
    """The axis along which a group that copies a value into panels keeps neighbours together, and
    how many of them; None if it does not.
    """
    store = group.stores[0]
    count = store.place.layout.neighbours
    if len(group.stores) > 1 or count == 1 or store.term not in group.reads:
        return None
    source = group.reads[store.term]
    if source.frame != store.frame or store.index is not None:
        return None
    inner = _inner(store.place, count)
    return None if inner is None or _inner(source, count) is not inner else (inner, count)


def word_offset(offset: Expression, near: Symbol, count: int) -> Expression | None:
    """Where a word lies of the neighbours along an axis, in words; None where they do not lie side
    by side, or not in whole words.
    """
    if offset.coefficient(near) is not ONE:
        return None
    first = offset.substitute({near: ZERO})
    word = first // count
    return word if word * count is first else None


def _walked(contraction: Term, dot: Dot, reads: Mapping[Term, Place]) -> Symbol | str:
    """The axis along which neighbours lie; or why there is none."""
    if contraction.op != "Sum" or contraction.dtype is not dot.accumulator:
        return f"it is a {contraction.op} of {contraction.dtype}"
    (product,) = contraction.args
    if product.op != "Mul" or product in reads:
        return "what it sums is no product of its own"
    found = []
    for factor, dtype in zip(product.args, (dot.a, dot.b), strict=True):
        source = source_of(factor, reads.__contains__)
        if source is None or source.casts != 1 or source.term not in reads:
            return f"the factor {factor!r} is no {dtype} in memory"
        if reads[source.term].dtype is not dtype:
            return f"the factor {factor!r} is no {dtype} in memory"
        found.append((source, reads[source.term]))
    if all(place.layout.neighbours != dot.k for _, place in found):
        return "neither factor lies in panels of neighbours"
    axes = []
    for source, place in found:
        inner = _inner(place, dot.k)
        if inner is None:
            return f"the factor {source.term!r} has no {dot.k} neighbours side by side"
        axes.append(source.names.get(inner, inner))
    if axes[0] is not axes[1] or axes[0] not in contraction.attrs:
        return "neighbours of the factors do not lie along one summed axis"
    return axes[0]


def _inner(place: Place, count: int) -> Symbol | None:
    """The axis whose neighbours lie side by side, in words of so many."""
    if place.layout.neighbours == count:
        return last_axis(place.frame[place.layout.blocks[-1][0]], count)
    is_plain = place.frame and place.layout == ROW_MAJOR
    return last_axis(place.frame[-1], count) if is_plain else None
