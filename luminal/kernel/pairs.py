"""Contractions of bfloat16 two positions at a time, as hardware that multiplies pairs has it.

The selection says which contractions run so: one of their factors is a weight whose panels keep
neighbours along the sum together. Two neighbours of either factor are then one 32-bit word, half as
many words are walked, and a `Contract` of words adds both products. The copy into such panels moves
words too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from luminal.algebra.terms import Axes, Term, Terms
from luminal.dots import BF16_PAIRS
from luminal.kernel.group import Group, Place, Store
from luminal.kernel.layout import ROW_MAJOR, Layout
from luminal.kernel.source import Source, source_of
from luminal.shape.expression import Symbol, axis

PAIR = BF16_PAIRS.k


def in_pairs(panels: Layout, along: int) -> Layout:
    """Panels that keep two neighbours along a dimension together, innermost."""
    return replace(panels, blocks=(*panels.blocks, (along, PAIR)))


def last_axis(dimension: Axes) -> Symbol | None:
    """The axis along which a dimension's neighbours lie, if it is made of whole pairs."""
    for symbol in dimension[-1:]:
        extent = symbol.extent
        if extent is not None and extent.is_const and extent.value % PAIR == 0:
            return symbol
    return None


def is_paired(layout: Layout) -> bool:
    """Are these panels whose neighbours are kept together?"""
    return [n for _, n in layout.blocks[1:]] == [PAIR]


def refusal(contraction: Term, reads: Mapping[Term, Place]) -> str | None:
    """Why a kernel that reads these places cannot multiply two positions at a time; None if it can.

    Both factors must be bfloat16 in memory, one of them in pairs, neighbours along one summed axis
    side by side in either.
    """
    found = _operands(contraction, reads)
    return found if isinstance(found, str) else None


def in_words(group: Group) -> tuple[Group, Mapping[Term, Term]]:
    """The group over words, where its dots or a copy ask for it; and its terms' new ones."""
    store = group.stores[0]
    if len(group.stores) == 1 and _is_paired(store.place) and store.term in group.reads:
        return _copy(group, store), {}
    if not group.dots:
        return group, {}
    terms, reads = Terms(), dict(group.reads)
    paired = [term for term in group.reductions if term in group.dots]
    new: dict[Term, Term] = {term: _over_words(term, terms, reads) for term in paired}
    dots = {new[term]: group.dots[term] for term in paired}
    return replace(_replaced(group, terms, new, reads), dots=dots), new


def _is_paired(place: Place) -> bool:
    return place.dtype is BF16_PAIRS.factor and is_paired(place.layout)


def _inner(place: Place) -> Symbol | None:
    """The axis whose neighbours are a word."""
    if _is_paired(place):
        return last_axis(place.frame[place.layout.blocks[1][0]])
    is_plain = place.frame and place.layout == ROW_MAJOR
    return last_axis(place.frame[-1]) if is_plain else None


def _words(terms: Terms, source: Source, place: Place) -> tuple[Term, Place]:
    """What is read as words, and where: one axis is half as long."""
    inner = _inner(place)
    assert inner is not None
    assert inner.extent is not None
    outside = source.names.get(inner, inner)
    half = axis(f"{outside.name}/{PAIR}", inner.extent.value // PAIR)
    read = terms.pointwise("Bitcast", (source.term,), BF16_PAIRS.word)
    term = terms.at(read, {**source.names, inner: half * PAIR})
    frame = replace(source, names={**source.names, inner: half}).renamed(place.frame)
    layout = replace(place.layout, blocks=place.layout.blocks[:1])
    return term, replace(place, dtype=BF16_PAIRS.word, frame=frame, layout=layout)


def _copy(group: Group, store: Store) -> Group:
    """A weight copied into panels."""
    source = group.reads[store.term]
    if source.frame != store.frame or store.index is not None:
        return group
    if _inner(source) is not _inner(store.place) or _inner(source) is None:
        return group
    term, place = _words(Terms(), Source(store.term), source)
    target = replace(store.place, dtype=BF16_PAIRS.word, frame=place.frame)
    target = replace(target, layout=replace(target.layout, blocks=target.layout.blocks[:1]))
    return Group((Store(term, target, place.frame),), {term: place}, frozenset(), group.facts)


def _operands(
    contraction: Term, reads: Mapping[Term, Place]
) -> tuple[Symbol, list[tuple[Source, Place]]] | str:
    """The axis along which pairs lie, and both factors and their places; or why there is none."""
    if contraction.op != "Sum" or contraction.dtype is not BF16_PAIRS.accumulator:
        return f"it is a {contraction.op} of {contraction.dtype}"
    (product,) = contraction.args
    if product.op != "Mul" or product in reads:
        return "what it sums is no product of its own"
    found = []
    for factor in product.args:
        source = _in_memory(factor, reads)
        if source is None:
            return f"the factor {factor!r} is no {BF16_PAIRS.factor} in memory"
        found.append((source, reads[source.term]))
    if not any(_is_paired(place) for _, place in found):
        return "neither factor lies in pairs"
    walked = []
    for source, place in found:
        inner = _inner(place)
        if inner is None:
            return f"the factor {source.term!r} has no neighbours in pairs"
        walked.append(source.names.get(inner, inner))
    if walked[0] is not walked[1] or walked[0] not in contraction.attrs:
        return "neighbours of the factors do not lie along one summed axis"
    return walked[0], found


def _over_words(reduction: Term, terms: Terms, reads: dict[Term, Place]) -> Term:
    """The sum of products with both factors read as words, which are added to `reads`."""
    found = _operands(reduction, reads)
    assert not isinstance(found, str), f"{reduction!r} is not computed in pairs: {found}"
    walked, operands = found
    words = [_words(terms, source, place) for source, place in operands]
    reads.update(words)
    pair, *_ = (term for term, _ in words)
    (half,) = pair.axes - reduction.args[0].axes
    multiplied = terms.pointwise("Mul", [term for term, _ in words], reduction.dtype)
    return terms.reduce("Sum", {*reduction.attrs} - {walked} | {half}, multiplied, merge=False)


def _in_memory(factor: Term, reads: Mapping[Term, Place]) -> Source | None:
    """The bfloat16 value that a factor is, cast once."""
    source = source_of(factor, reads.__contains__)
    if source is None or source.casts != 1 or source.term not in reads:
        return None
    return source if reads[source.term].dtype is BF16_PAIRS.factor else None


def _replaced(group: Group, terms: Terms, new: dict[Term, Term], reads: dict[Term, Place]) -> Group:
    """The group with terms replaced, and those above them."""
    for term in group.terms:
        if term not in new:
            is_read = term in group.reads
            args = term.args if is_read else tuple(new[arg] for arg in term.args)
            new[term] = terms.with_args(term, args)
    stores = tuple(replace(store, term=new[store.term]) for store in group.stores)
    used = _read(stores, reads)
    local = frozenset(new[t] for t in group.local if t in new)
    return Group(stores, {t: p for t, p in reads.items() if t in used}, local, group.facts)


def _read(stores: Iterable[Store], reads: dict[Term, Place]) -> set[Term]:
    """Those of `reads` that the stores still read."""
    seen: set[Term] = set()
    stack = [root for store in stores for root in store.roots]
    while stack:
        term = stack.pop()
        if term not in seen:
            seen.add(term)
            stack.extend(() if term in reads else term.args)
    return seen & reads.keys()
