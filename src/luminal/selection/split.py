"""Splitting reductions that have too few results to keep a team busy, and contractions so long that
their operands leave the caches before the next results want them.

`Sum{k} f` becomes `Sum{c} (Sum{j} f[k := c*n + j])` over chunks c, the inner sum stored: the number
of chunks is fixed by the extents, so the bits do not depend on how many units work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from luminal.algebra.frames import upper
from luminal.algebra.reductions import Cut, cut, longest, only_inside
from luminal.algebra.terms import Frame, Leaf, Reduction, Term, Terms, term_order
from luminal.base.costs import Costs, Shares
from luminal.base.numerics import ROUNDING, Numerics
from luminal.selection import cascades
from luminal.selection.kinds import is_contraction
from luminal.selection.places import FirstMaximum, first_place, place
from luminal.selection.rewrite import Respelled
from luminal.selection.stored import stored_anyway
from luminal.shape.expression import Expression, Symbol

ROWS = 64  # that are added up for each one of partial results, at least: it is written and read
ALONE = 2  # times the work from which idle units matter: a share of columns was a vector wide
TRIES = 256  # chunk sizes looked at for one that divides the extent
MAX_CHUNK = 1 << 16  # positions: extents without a useful bound are cut all the same


def split_reductions(program: Respelled, costs: Costs, numerics: Numerics) -> Respelled:
    """The program with long or idle reductions in two stages, but those of kernels that stream what
    they reduce: these end when their block does.
    """
    order = program.order()
    wanted = {term for term in order if _is_wanted(term, program.lowered.shapes, costs)}
    if numerics.allows(ROUNDING) and any(map(is_contraction, wanted)):
        forced = stored_anyway(program.lowered.roots, order)
        passes = cascades.find(order, forced, costs)
        wanted.difference_update(r for p in passes for r in p.cascade.reductions)
    if not wanted:
        return program
    terms = program.lowered.terms
    places = _places(wanted, costs)
    chunks = {asked.greatest: chunk for asked, chunk in places.values()}
    inner: dict[Term, tuple[Term, Term]] = {}  # by reduction: that of each chunk, and what of
    frames: dict[Term, Frame] = {}

    def replace(old: Term, same: Term) -> Term:
        if old not in wanted or not isinstance(old, Reduction) or not isinstance(same, Reduction):
            return same
        if old in places:
            asked, chunk = places[old]
            return first_place(terms, asked, cut(*chunk), *inner[asked.greatest])
        chunk_of = chunks.get(old) or _chunk(old, costs)
        assert chunk_of is not None
        if chunk_of[0] not in same.args[0].axes:
            return same  # a broadcast: nothing to share out
        parts = cut(*chunk_of)
        of_chunk = _inner(terms, same, parts)
        inner[old] = of_chunk, same.args[0]
        frame = _columns(old, program.lowered.shapes)
        if frame is not None:  # a chunk's results side by side: no two units write to one line
            frames[of_chunk] = ((parts.chunk,), *frame)
        return terms.reduce(same.op, (parts.chunk,), of_chunk, merge=False)

    rewritten = program.rewrite(replace)
    lowered = dataclasses.replace(rewritten.lowered, shapes={**rewritten.lowered.shapes, **frames})
    return Respelled(lowered, rewritten.same)


def _places(
    wanted: Iterable[Term], costs: Costs
) -> dict[Term, tuple[FirstMaximum, tuple[Symbol, int]]]:
    """The reductions that ask where the greatest is first, and the chunks it is looked for in."""
    by_term: dict[Term, tuple[FirstMaximum, tuple[Symbol, int]]] = {}
    for term in wanted:
        asked = place(term)
        along = asked.outermost() if asked is not None else None
        if asked is None or along is None or along not in asked.greatest.args[0].axes:
            continue
        size = _size(asked.greatest, along, costs)
        if size is not None and asked.greatest in wanted:
            by_term[term] = asked, (along, size)
    return by_term


def _is_wanted(term: Term, shapes: Mapping[Term, Frame], costs: Costs) -> bool:
    if not isinstance(term, Reduction):
        return False
    # Idle: fewer results than units. Long: each operand is read once per tile of results, and
    # what does not stay in a cache in between comes from memory every time. Both are facts of the
    # machine, so they come from the costs.
    points, length = upper(term.axes), upper(term.attrs)
    idle = costs.shares.leave_idle(points, points * length)
    if is_contraction(term):
        long = length >= costs.long_sums.length and points <= costs.long_sums.points
        idle = idle or long
    elif not idle and costs.shares.columns > 1 and _columns(term, shapes) is not None:
        idle = _are_few_columns(term, costs)
    return idle and _chunk(term, costs) is not None


def _columns(reduction: Reduction, shapes: Mapping[Term, Frame]) -> Frame | None:
    """The order of its results' axes in what is reduced, if results lie as that does, side by
    side; else None.
    """
    (x,) = reduction.args
    frame = x.attrs.frame if isinstance(x, Leaf) else shapes.get(x, ())
    results_frame = [tuple(a for a in dimension if a in reduction.axes) for dimension in frame]
    innermost = next((dimension[-1] for dimension in reversed(frame) if dimension), None)
    return tuple(filter(None, results_frame)) if innermost in reduction.axes else None


# Columns that lie side by side are one share as far as registers hold their sums, so a sum of 64
# columns would have one share. It is cut along its rows, but a row of partial sums is written and
# read for each chunk: hence the least number of rows.
def _are_few_columns(reduction: Reduction, costs: Costs) -> bool:
    """Are columns one share, or such that rows that come from memory are read in parts by each?"""
    points, length = upper(reduction.axes), upper(reduction.attrs)
    shares = -(-points // costs.shares.columns)
    size = points * length * reduction.dtype.size
    is_alone = shares == 1 and points * length > ALONE * costs.shares.work
    return is_alone or (shares <= costs.shares.points and size > costs.cache_bytes)


# The number of chunks follows from extents alone, never from the number of threads: bits depend on
# where a sum is cut, and the same program has the same bits on every machine of a kind.
def _chunk(reduction: Reduction, costs: Costs) -> tuple[Symbol, int] | None:
    """The axis to cut and the positions per chunk.

    That is the longest axis; where chunks do not fill it, rather one outside of it that they fill,
    so that rows stay whole: a part of every row begins off a line, and ends in a tail. (Sums of
    floats are nearer the truth by parts.)
    """
    along = longest(reduction.attrs)
    size = _size(reduction, along, costs)
    if size is None:
        return None
    if upper((along,)) % size and reduction.monoid.is_exact(reduction.dtype):
        for outer in reduction.attrs[: reduction.attrs.index(along)]:
            rows = _size(reduction, outer, costs)
            chunks, rest = divmod(upper((outer,)), rows or 1)
            if rows is not None and not rest and chunks >= costs.shares.points:
                return outer, rows
    return along, size


def _size(reduction: Reduction, along: Symbol, costs: Costs) -> int | None:
    elements = upper(reduction.axes) * upper(reduction.attrs) // upper((along,))
    rows = costs.long_sums.chunk if is_contraction(reduction) else ROWS
    return chunk_size(upper((along,)), elements, costs.shares, rows * upper(reduction.axes))


def chunk_size(length: int, elements: int, shares: Shares, least: int = 1) -> int | None:
    """Positions per chunk of an axis with `elements` at each position, at least `least` elements in
    a chunk; None where there would not be two.
    """
    largest = min(-(-length // shares.chunks), MAX_CHUNK)
    size = max(largest, -(-max(shares.chunk, least) // elements))
    even = next(
        (n for n in range(size, min(2 * size, size + TRIES)) if length % n == 0), size
    )  # needs no guard
    return even if even * 2 <= length else None


def _inner(terms: Terms, reduction: Reduction, parts: Cut) -> Term:
    """The reduction of each chunk."""
    (x,) = reduction.args
    x = factors_at(terms, x, {parts.along: parts.position})
    inside = only_inside(terms, parts.inside, x, reduction.monoid)
    return terms.reduce(reduction.op, parts.inner(reduction.attrs), inside)


def factors_at(terms: Terms, x: Term, positions: Mapping[Symbol, Expression]) -> Term:
    """`x` at other positions; a product moves factor by factor, so that it stays a contraction."""
    moved: dict[Term, Term] = {}
    for term in term_order((x,), lambda t: t.op != "Mul"):
        if term.op == "Mul":
            moved[term] = terms.pointwise("Mul", [moved[arg] for arg in term.args], term.dtype)
        else:
            moved[term] = terms.at(term, positions)
    return moved[x]
