"""Splitting cascades that have too few rows to keep a device busy: attention of one query.

Of a pass (`kernel/cascade.py`) over steps, with a maximum m and sums s that follow it, each chunk c
of the steps is a pass of its own, with its maximum m[c] and sums s[c] under that. The law that lets
sums follow a maximum combines them: a sum under m[c] is one under m once it is multiplied by
`exp(rate * (m - m[c]))`, which never exceeds 1. So

    m = Max{c} m[c],    s = Sum{c} exp(rate * m - rate * m[c]) * s[c]

which is a cascade too, over the chunks. A chunk that is all masked has m[c] = -inf, and NaN for its
sums as any such row has: it counts for nothing, unless all chunks are so.

The number of chunks follows from extents alone, as in `split.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence, Set

from luminal.algebra.reductions import cut, longest, only_inside
from luminal.algebra.terms import (
    At,
    Frame,
    Index,
    Literal,
    Reduction,
    Term,
    Terms,
    axis_order,
    below,
    dependents,
    term_order,
)
from luminal.base.costs import Costs
from luminal.base.dtypes import bool_
from luminal.base.numerics import ROUNDING, Numerics
from luminal.hlir.attributes import Slot
from luminal.hlir.monoid import MAXIMUM
from luminal.kernel.cascade import Cascade, Rate
from luminal.selection import cascades
from luminal.selection.cascade_costs import steps_of_chunk
from luminal.selection.rewrite import Respelled
from luminal.selection.split import factors_at
from luminal.selection.stored import stored_anyway
from luminal.selection.users import users_of
from luminal.shape.expression import TRUE, Expression, Symbol, minimum

MOST_LOOKED_AT = 32  # operations of a mask


def split_cascades(program: Respelled, costs: Costs, numerics: Numerics) -> Respelled:
    """The program with passes of few rows cut along their steps, where chunks and what combines
    them are passes then.
    """
    return in_chunks(program, costs)[0] if numerics.allows(ROUNDING) else program


def in_chunks(program: Respelled, costs: Costs) -> tuple[Respelled, Set[Term]]:
    """The program that `split_cascades` makes, and the reductions of it that are cut."""
    planned = [*_planned(program, costs)] if costs.shares.passes else []
    while planned:
        done, members = _cut(program, planned)
        outside = _outside_of_passes(done, members, costs)
        if not outside:
            return done, members.keys()
        planned = [pair for pair in planned if outside.isdisjoint(pair[0].results)]
    return program, frozenset()


def _planned(program: Respelled, costs: Costs) -> Iterator[tuple[Cascade, int]]:
    """The cascades worth cutting, and the steps of a chunk."""
    order = program.order()
    taken: set[Term] = set()
    for stream in cascades.streams(order, stored_anyway(program.lowered.roots, order), costs):
        cascade = stream.cascade
        size = steps_of_chunk(cascade, costs)
        if size is not None and _may_be_cut(cascade) and taken.isdisjoint(cascade.results):
            taken |= cascade.results
            yield cascade, size


def _may_be_cut(cascade: Cascade) -> bool:
    """Do all sums follow a maximum, but what may be combined in any order?"""
    plain = (m.term for m in cascade.members if m.rate is None)
    follow = any(m.rate is not None for m in cascade.members)
    return follow and all(r.monoid.is_exact(r.dtype) for r in plain)


def _cut(
    program: Respelled, planned: Sequence[tuple[Cascade, int]]
) -> tuple[Respelled, dict[Term, tuple[Term, Term]]]:
    """The program with these cascades cut and, by member, those of each chunk and of all."""
    lowered = program.lowered
    new: dict[Term, Term] = {}
    chunks: dict[Term, _Chunks] = {}
    order = program.order()
    users, stored = users_of(order), stored_anyway(lowered.roots, order)
    for cascade, size in planned:
        chunked = _Chunks(lowered.terms, new, cascade, size)
        chunked.take_over(users, stored)
        chunks |= dict.fromkeys(cascade.results, chunked)

    def replace(old: Term, same: Term) -> Term:
        new[old] = chunks[old].combined(old) if old in chunks else same
        return new[old]

    rewritten = program.rewrite(replace)
    shapes = dict(rewritten.lowered.shapes)
    for member, chunked in chunks.items():
        shapes |= chunked.frames(member, lowered.shapes.get(member))
    done = dataclasses.replace(rewritten.lowered, shapes=shapes)
    members = {member: (chunks[member].parts[member], new[member]) for member in chunks}
    return Respelled(done, rewritten.same), members


def _outside_of_passes(
    program: Respelled, members: Mapping[Term, tuple[Term, Term]], costs: Costs
) -> set[Term]:
    """The members that no pass computes, in chunks or combined, though a kernel does."""
    order = program.order()
    passes = cascades.find(order, stored_anyway(program.lowered.roots, order), costs)
    outside = {*order} - {t for p in passes for t in p.cascade.results}
    return {member for member, terms in members.items() if not outside.isdisjoint(terms)}


class _Chunks:
    """A cascade cut into chunks of its steps. `new`: what terms have become that come before.

    `parts`: a member's value for each chunk; `own`: values that nothing but the steps reads.
    """

    def __init__(self, terms: Terms, new: Mapping[Term, Term], cascade: Cascade, size: int) -> None:
        self.terms, self.new = terms, new
        self.members = {m.term: m.rate for m in cascade.members}
        self.inner = frozenset(cascade.inner)
        self.cut = cut(longest(cascade.first.attrs), size)
        self.parts: dict[Term, Term] = {}
        self.counted: dict[Term, Term] = {}  # what counts of the sums of a chunk
        self.scaled: dict[Term, Term] = {}  # what is the greatest of all chunks
        self.moved: dict[Term, Term] = {}  # what terms of a step are in a chunk
        order = term_order([arg for m in self.members for arg in m.args], self._is_end)
        self.of_step = dependents(order, (*self.members, *self.inner)) - self.members.keys()
        self.own: set[Term] = set()

    # What a step reads of a paged cache is a chain of lookups and masks: moved as a whole it would
    # be a value of its own, which somebody has to store.
    def take_over(self, users: Mapping[Term, Sequence[Term]], stored: Set[Term]) -> None:
        """Finds the values that are computed at each step for no one else."""

        def is_end(term: Term) -> bool:
            return term in self.members or (self._is_end(term) and not isinstance(term, At))

        order = term_order([arg for m in self.members for arg in m.args], is_end)
        for term in reversed(order):
            varies = not is_end(term) and self.cut.along in term.axes and term not in stored
            inside = self.of_step | self.own
            if varies and term not in inside and inside.issuperset(users[term]):
                self.own.add(term)

    def _is_end(self, term: Term) -> bool:
        computed = term.is_pointwise or term in self.inner
        return not computed or term in self.members

    def frames(self, member: Term, recorded: Frame | None) -> dict[Term, Frame]:
        """The frames of what the kernel of the chunks may store: one chunk after the other."""
        frame = tuple((a,) for a in axis_order(member.axes)) if recorded is None else recorded
        part = self.parts[member]
        stored = (part, self.counted.get(part, part), self.scaled.get(part, part))
        return dict.fromkeys(stored, ((self.cut.chunk,), *frame))

    def combined(self, member: Term) -> Term:
        """A member of all chunks."""
        assert isinstance(member, Reduction)
        terms, rate = self.terms, self.members[member]
        part = self.parts[member] = self.part(member)
        if rate is not None:
            maximum = self.parts[rate.maximum]
            lowest = terms.literal(MAXIMUM.identity_bytes(maximum.dtype), maximum.dtype)
            some = terms.pointwise("LessThan", (lowest, maximum), bool_)
            nothing = terms.literal(member.monoid.identity_bytes(part.dtype), part.dtype)
            counted = terms.pointwise("Select", (some, part, nothing), part.dtype)
            self.counted[part] = counted
            part = terms.pointwise("Mul", (self.weight(rate), counted), part.dtype)
        return terms.reduce(member.op, (self.cut.chunk,), part, merge=False)

    # The kernel of the chunks stores what their maxima are scaled to, so the greatest of that is
    # taken: a scale between it and what it is the greatest of would hide how they move together.
    def weight(self, rate: Rate) -> Term:
        """What a sum under the maximum of a chunk is multiplied by."""
        maximum = self.parts[rate.maximum]
        part = self.scaled[maximum] = self._times(-rate.factor, maximum)
        greatest = self.terms.reduce("Max", (self.cut.chunk,), part, merge=False)
        exponent = self.terms.pointwise("Add", (part, self._times(-1, greatest)), part.dtype)
        return self.terms.pointwise(rate.base, (exponent,), part.dtype)

    def _times(self, factor: float, x: Term) -> Term:
        if factor == 1:
            return x
        data = x.dtype.numpy.type(factor).tobytes()
        return self.terms.pointwise("Mul", (self.terms.literal(data, x.dtype), x), x.dtype)

    def part(self, member: Reduction) -> Term:
        """A member's value for each chunk."""
        (x,) = member.args
        reduced = self.at(x)
        if self.members[member] is None:
            # What follows the maximum has x in an exponent, and so has nothing where that is -inf.
            reduced = only_inside(self.terms, self.cut.inside, reduced, member.monoid)
            if member.monoid is MAXIMUM:
                self.moved[x] = reduced
        return self.terms.reduce(member.op, self.cut.inner(member.attrs), reduced, merge=False)

    def at(self, term: Term) -> Term:
        """A value of a step, in a chunk. Steps beyond the last are as the last one is, so that what
        is read there is a value, but the maximum leaves them out.
        """
        inside = self.of_step | self.own
        below = term_order((term,), lambda t: t in self.moved or t not in inside)
        for step in below:
            if step not in self.moved:
                self.moved[step] = self._at(step)
        return self.moved[term]

    def _at(self, term: Term) -> Term:
        terms = self.terms
        if term in self.members:
            return self.parts[term]
        if term in self.inner:
            (product,) = term.args
            factors = self.moved[product] if product in self.own else None
            factors = factors or factors_at(terms, self.new[product], self.positions)
            return terms.reduce(term.op, term.attrs, factors, merge=False)
        if isinstance(term, At) and term in self.own:
            return self._looked_up(term)
        if term in self.of_step or term in self.own:
            return terms.pointwise(term.op, [self.moved[arg] for arg in term.args], term.dtype)
        if _is_of_positions(term):
            return self._at_positions(term)
        return terms.at(self.new[term], self.positions)

    def _looked_up(self, term: At) -> Term:
        """What is read at other positions, which may follow from the step."""
        (x, *_), positions = term.args, self.positions
        there: dict[Symbol, Expression | Term] = {**positions}
        inside = []
        for axis, index in term.attrs:
            if isinstance(index, Slot):
                there[axis] = chosen = self.moved[term.args[1 + index]]
                inside += [chosen] if index.inside else []
            else:
                assert isinstance(index, Expression)
                there[axis] = index.substitute(positions)
        return self.terms.at(self.new[x], there, inside)

    def _at_positions(self, term: Term) -> Term:
        """Masks, whose conditions say which steps a pass leaves out."""
        exact = {self.cut.along: self.cut.position}
        if isinstance(term, Index):
            return self.terms.index(term.attrs.substitute(exact), term.dtype)
        args = [self._at_positions(arg) for arg in term.args]
        return self.terms.with_args(term, tuple(args)) if args else term

    @property
    def positions(self) -> Mapping[Symbol, Expression]:
        """The step that is read at each position of a chunk."""
        along, position = self.cut.along, self.cut.position
        assert along.extent is not None
        fills = self.cut.inside is TRUE
        return {along: position if fills else minimum(position, along.extent - 1)}


def _is_of_positions(term: Term) -> bool:
    """Is the value computed of positions and numbers alone?"""
    inside = below((term,), most=MOST_LOOKED_AT)
    return len(inside) <= MOST_LOOKED_AT and all(
        t.is_pointwise or isinstance(t, Index | Literal) for t in inside
    )
