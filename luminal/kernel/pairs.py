"""Contractions of bfloat16 two positions at a time, as hardware that multiplies pairs has it.

A weight whose panels keep neighbours along the sum together says that a contraction is to run so.
Two neighbours of either factor are then one 32-bit word, half as many words are walked, and a
`Contract` of words adds both products. The copy into such panels moves words too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from luminal.algebra.terms import Axes, Term, Terms
from luminal.dtypes import bfloat16, float32, uint32
from luminal.kernel.group import Group, Place, Store
from luminal.kernel.layout import ROW_MAJOR, Layout
from luminal.kernel.source import Source, source_of
from luminal.shape.expression import Symbol, axis

PAIR = 2


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


def paired(group: Group) -> Group:
    """The group over words where a weight lies in pairs; else the same."""
    store = group.stores[0]
    if len(group.stores) == 1 and _is_paired(store.place) and store.term in group.reads:
        return _copy(group, store)
    if not any(map(_is_paired, group.reads.values())):
        return group
    terms, reads = Terms(), dict(group.reads)
    new = {r: _over_words(r, terms, reads) for r in group.reductions}
    return _replaced(group, terms, {r: total for r, total in new.items() if total}, reads)


def _is_paired(place: Place) -> bool:
    return place.dtype is bfloat16 and [n for _, n in place.layout.blocks[1:]] == [PAIR]


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
    read = terms.pointwise("Bitcast", (source.term,), uint32)
    term = terms.at(read, {**source.names, inner: half * PAIR})
    frame = replace(source, names={**source.names, inner: half}).renamed(place.frame)
    layout = replace(place.layout, blocks=place.layout.blocks[:1])
    return term, replace(place, dtype=uint32, frame=frame, layout=layout)


def _copy(group: Group, store: Store) -> Group:
    """A weight copied into panels."""
    source = group.reads[store.term]
    if source.frame != store.frame or store.index is not None:
        return group
    if _inner(source) is not _inner(store.place) or _inner(source) is None:
        return group
    term, place = _words(Terms(), Source(store.term), source)
    target = replace(store.place, dtype=uint32, frame=place.frame)
    target = replace(target, layout=replace(target.layout, blocks=target.layout.blocks[:1]))
    return Group((Store(term, target, place.frame),), {term: place}, frozenset(), group.facts)


def _over_words(reduction: Term, terms: Terms, reads: dict[Term, Place]) -> Term | None:
    """The sum of products with both factors read as words, which are added to `reads`."""
    (product,) = reduction.args
    if product.op != "Mul" or len(product.args) != 2 or reduction.dtype is not float32:
        return None
    factors = [_in_memory(factor, reads) for factor in product.args]
    found = [(source, reads[source.term]) for source in factors if source is not None]
    if len(found) != 2 or not any(_is_paired(place) for _, place in found):
        return None
    words, walked = [], set()
    for source, place in found:
        inner = _inner(place)
        if inner is None:
            return None
        walked.add(source.names.get(inner, inner))
        words.append(_words(terms, source, place))
    if len(walked) != 1 or not walked <= set(reduction.attrs):
        return None
    reads.update(words)
    pair, *_ = (term for term, _ in words)
    (half,) = pair.axes - product.axes
    multiplied = terms.pointwise("Mul", [term for term, _ in words], float32)
    return terms.reduce("Sum", {*reduction.attrs} - walked | {half}, multiplied, merge=False)


def _in_memory(factor: Term, reads: Mapping[Term, Place]) -> Source | None:
    """The bfloat16 value that a factor is, cast once."""
    source = source_of(factor, reads.__contains__)
    if source is None or source.casts != 1 or source.term not in reads:
        return None
    return source if reads[source.term].dtype is bfloat16 else None


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
