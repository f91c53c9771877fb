"""Sums at computed positions that leave units idle are formed in private parts.

A Scatter that adds runs over the free axes of its source (`algebra/scatter.py`). Where these have
few points, an axis along which positions meet is cut into chunks, each with zeros of its own to add
to: `Scatter(y, x) -> y + Sum{c} Scatter(0, x[c])`. The chunk is a coordinate of what is scattered
into, so it is a free axis like any other. The number of chunks is fixed by the extents: the bits do
not depend on how many units work.

Where the result is too large for parts (the gradient of an embedding), its elements have *owners*:
another axis of the source, whose every position walks all there is to store and does what lies at
a coordinate of its own. Elements still meet in order, to the bit.
"""

from __future__ import annotations

from math import prod

import numpy as np

from luminal.algebra.frames import linear, spread, upper
from luminal.algebra.reductions import cut, longest, only_inside
from luminal.algebra.scatter import ordered_axes, positions
from luminal.algebra.terms import Frame, OpaqueAttrs, Term, Terms
from luminal.base.costs import Shares
from luminal.base.dtypes import bool_
from luminal.base.numerics import ROUNDING, Numerics
from luminal.hlir.attributes import ScatterAttrs, Slot
from luminal.hlir.monoid import SUM
from luminal.selection.rewrite import Respelled
from luminal.selection.split import chunk_size
from luminal.shape.expression import Expression, Symbol, axis, const
from luminal.shape.view import index


def private_sums(program: Respelled, shares: Shares, numerics: Numerics) -> Respelled:
    """The program with Scatters that leave units idle in two stages; those of floats where they may
    round anew.
    """
    order = program.order()
    sites = max((term.attrs.site for term in order if term.is_opaque), default=0)
    may = [term for term in order if numerics.allows(ROUNDING) or SUM.is_exact(term.dtype)]
    cuts = {term: cut for term in may if (cut := _cut(term, shares)) is not None}
    wanted = {term: (sites + k, *cut) for k, (term, cut) in enumerate(cuts.items(), 1)}
    first = sites + len(wanted) + 1
    owned = [term for term in order if term not in cuts and _leaves_idle(term, shares)]
    sites_of = {term: first + k for k, term in enumerate(owned)}
    if not wanted and not sites_of:
        return program
    terms = program.lowered.terms

    def respelled(old: Term, same: Term) -> Term:
        if old in wanted:
            return _in_parts(terms, same, *wanted[old])
        return _by_owners(terms, same, sites_of[old], shares.owners) if old in sites_of else same

    return program.rewrite(respelled)


def _points(frame: Frame) -> int:
    return prod(upper(dimension) for dimension in frame)


def _cut(term: Term, shares: Shares) -> tuple[Symbol, int] | None:
    """The axis to cut and the positions per chunk."""
    # Of what is set the last one counts, and parts do not know which that is.
    if term.op != "Scatter" or term.attrs.hlir.mode != "add":
        return None
    ordered = ordered_axes(term)
    points = _points(term.attrs.frames[1])
    if not ordered or points <= shares.work or points >= shares.scattered * upper(ordered):
        return None
    along = longest(ordered)
    length = upper((along,))
    # Each part clears and adds up a whole result of its own, beside what it has to add.
    least = shares.part * _points(term.attrs.result)
    size = chunk_size(length, points // length, shares, least)
    return None if size is None else (along, size)


def _leaves_idle(term: Term, shares: Shares) -> bool:
    """Are there few free axes beside many positions, of which owners may each take some?"""
    if term.op != "Scatter" or not shares.owners:
        return False
    computed = [entry for entry in positions(term) if isinstance(entry, Term)]
    if not computed or not computed[0].dtype.is_signed:  # no number of which is outside
        return False
    ordered = upper(ordered_axes(term))
    points = _points(term.attrs.frames[1])
    is_few = shares.work < points < shares.scattered * ordered
    return is_few and ordered >= shares.owners * shares.part


def _by_owners(terms: Terms, scatter: Term, site: int, owners: int) -> Term:
    """The Scatter with an axis of owners, each of which stores where the last bits of the first
    computed coordinate are its number.
    """
    attrs: OpaqueAttrs = scatter.attrs
    owner = axis(f"owner{site}", const(owners))
    axes = [owner, *(a for dimension in attrs.frames[1] for a in dimension)]
    indices = {a: index(k, a.extent) for k, a in enumerate(axes) if a.extent is not None}
    entries: list[Expression | Slot] = []
    coordinates: list[Term] = []
    for entry in positions(scatter):
        if not isinstance(entry, Term):
            entries.append(entry.substitute(indices))
            continue
        entries.append(Slot(len(coordinates)))
        coordinates.append(entry if coordinates else _if_owned(terms, entry, owner, owners))
    frame = tuple((a,) for a in axes)
    frames = (attrs.frames[0], frame, *(frame for _ in coordinates))
    hlir = ScatterAttrs(tuple(entries), attrs.hlir.mode)
    return terms.opaque(
        "Scatter",
        (*scatter.args[:2], *coordinates),
        OpaqueAttrs(hlir, frames, attrs.result, 0, site),
        scatter.dtype,
    )


def _if_owned(terms: Terms, position: Term, owner: Symbol, owners: int) -> Term:
    """The coordinate where it is the owner's, else one outside of everything."""

    def literal(value: int) -> Term:
        dtype = position.dtype
        return terms.literal(np.array(value, dtype.numpy).tobytes(), dtype)

    last = terms.pointwise("And", (position, literal(owners - 1)), position.dtype)
    mine = terms.pointwise("Equal", (last, terms.index(owner, position.dtype)), bool_)
    return terms.pointwise("Select", (mine, position, literal(-1)), position.dtype)


# Sorting positions so that no two threads meet takes five times as long as storing at them. A copy
# of the destination for each chunk costs memory and one sum over the copies, and needs neither.
def _in_parts(terms: Terms, scatter: Term, site: int, along: Symbol, size: int) -> Term:
    # Atomic additions would do the same with one destination, but then bits would depend on the
    # order in which threads come; private parts are added up in a fixed one.
    # A site is one operation; the new Scatter is another one than the old, which others may use.
    attrs: OpaqueAttrs = scatter.attrs
    chunks = cut(along, size, site)
    chunk, within, moved = chunks.chunk, chunks.within, {along: chunks.position}
    assert chunk.extent is not None
    part = axis(f"{along.name}.part{site}", chunk.extent)

    dest, source = scatter.args[:2]
    zero = terms.literal(SUM.identity_bytes(scatter.dtype), scatter.dtype)
    x = only_inside(terms, chunks.inside, terms.at(source, moved), SUM)

    old = [a for dimension in attrs.frames[1] for a in dimension]
    axes = [chunk, *(within if a is along else a for a in old)]
    indices = {a: index(k, a.extent) for k, a in enumerate(axes) if a.extent is not None}
    # The chunk is a coordinate: with it, positions that met in different chunks meet no more.
    entries: list[Expression | Slot] = [indices[chunk]]
    indices_moved: list[Term] = []
    for entry in positions(scatter):
        if isinstance(entry, Term):
            entries.append(Slot(len(indices_moved)))
            indices_moved.append(terms.at(entry, moved))
        else:
            entries.append(entry.substitute(moved).substitute(indices))

    frame = tuple((a,) for a in axes)
    result = ((part,), *attrs.result)
    hlir = ScatterAttrs(tuple(entries), "add")
    frames = (result, frame, *(frame for _ in indices_moved))
    parts = terms.opaque(
        "Scatter",
        (zero, x, *indices_moved),
        OpaqueAttrs(hlir, frames, result, 0, site),
        scatter.dtype,
    )
    axes_here: dict[Symbol, Expression] = {}
    for theirs, mine in zip(attrs.frames[0], attrs.result, strict=True):
        axes_here.update(spread(linear(mine), theirs))
    total = terms.reduce("Sum", (part,), parts, merge=False)
    return terms.pointwise("Add", (terms.at(dest, axes_here), total), scatter.dtype)
