"""Convolutions of enlarged pictures: taps that meet the same element are added up before.

A picture whose every element stands s times side by side (nearest-neighbour interpolation) is read
by results s*q + r at the positions q + (r + k + c) // s. With t = (r + k + c) // s - (r + c) // s

    Sum{k} x[(o + k + c) // s] * w[k]  ->  Sum{t} x[q + t + (r + c) // s] * v[r, t]
    v[r, t] = Sum{k} w[k]  of the taps k that meet it

where K - 1 is a multiple of s, so that all results have as many: of 3 x 3 taps of a picture twice
as large 2 x 2 are left, 4 multiplications for 9. Taps that are weights are added by the prologue.
Class *rounding*: w0*x + w1*x is (w0 + w1) * x.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from luminal.algebra.frames import upper
from luminal.algebra.terms import Frame, Literal, Phase, Reduction, Term, Terms, axis_order
from luminal.base.costs import Windows
from luminal.base.numerics import ROUNDING, Numerics
from luminal.base.records import dataclass
from luminal.selection.rewrite import Respelled
from luminal.selection.windows import part_of
from luminal.shape.expression import Expression, Symbol, all_of

CHANNELS = 16  # summed beside the taps: of fewer the results take longer to store than to compute
WIDE = 4  # bytes of a tap, at least: sums of narrower ones would be rounded more than products


@dataclass(frozen=True, slots=True)
class Spread:
    """An axis of a picture that a window reads at `(along + tap + shift) // step + start`."""

    picture: Symbol
    along: Symbol
    tap: Symbol
    step: int
    shift: int
    start: int

    @property
    def place(self) -> Symbol:
        """Which element of the picture a result belongs to."""
        return part_of(self.along, "place", upper((self.along,)) // self.step)

    @property
    def copy(self) -> Symbol:
        """Which of the results that belong to the same element."""
        return part_of(self.along, "of", self.step)

    @property
    def met(self) -> Symbol:
        """The elements that a result's taps meet, in order."""
        return part_of(self.tap, "met", (upper((self.tap,)) - 1) // self.step + 1)

    @property
    def first(self) -> Expression:
        """How many elements after its own one is that a result meets first, by its copy."""
        if self.step == 2:
            return self.copy * self.shift
        return (self.copy + self.shift) // self.step

    @property
    def position(self) -> Expression:
        """Where a result reads the picture."""
        return self.place + self.met + self.first + self.start

    @property
    def meets(self) -> Expression:
        """Is a tap one that meets this element?"""
        return ((self.copy + self.tap + self.shift) // self.step).eq(self.met + self.first)

    @property
    def inside(self) -> Expression:
        """Does the position lie in the picture?"""
        assert self.picture.extent is not None
        return all_of((self.position >= 0, self.position < self.picture.extent))


def enlarged(program: Respelled, costs: Windows | None, numerics: Numerics) -> Respelled:
    """The program with windows over enlarged pictures reading these as they are."""
    if costs is None or not numerics.allows(ROUNDING):
        return program
    terms, shapes = program.lowered.terms, program.lowered.shapes
    spreads_of = {
        term: spreads
        for term in program.order()
        if isinstance(term, Reduction) and term in shapes and (spreads := _spreads(term))
    }
    if not spreads_of:
        return program
    stored_frames: dict[Term, Frame] = {}

    def replaced(old: Term, same: Term) -> Term:
        if old not in spreads_of:
            return same
        return _met(terms, same, spreads_of[old], shapes[old], stored_frames)

    met = program.rewrite(replaced)
    lowered = met.lowered
    frames, kept = {**stored_frames, **lowered.shapes}, lowered.kept | stored_frames.keys()
    return replace(met, lowered=replace(lowered, shapes=frames, kept=kept))


def _spreads(term: Reduction) -> tuple[Spread, ...]:
    """The axes along which a convolution reads each element of a picture several times."""
    if term.op != "Sum" or term.args[0].op != "Mul":
        return ()
    data, taps = term.args[0].args
    is_narrow = taps.op == "Cast" or taps.dtype.size < WIDE or not taps.dtype.is_float
    if is_narrow or taps.phase is Phase.RUN:
        return ()
    moved, conditions = _moved(data)
    if moved is None:
        return ()
    spreads = []
    for tap in axis_order(a for a in term.attrs if a in taps.axes):
        spread = _spread(term, moved, tap)
        if spread is not None and _is_around(spread, conditions):
            spreads.append(spread)
    others = {*term.attrs} - {spread.tap for spread in spreads}
    return tuple(spreads) if upper(others) >= CHANNELS else ()


def _moved(data: Term) -> tuple[Term | None, tuple[Expression, ...]]:
    """What reads a picture at computed positions, and the conditions outside of which a literal
    stands for it.
    """
    conditions: tuple[Expression, ...] = ()
    if data.op == "Select":
        condition, data, outside = data.args
        if condition.op != "Index" or not isinstance(outside, Literal):
            return None, ()
        test = condition.attrs
        conditions = test.args if test.op == "and" else (test,)
    return (data if data.op == "At" and len(data.args) == 1 else None), conditions


def _spread(term: Reduction, moved: Term, tap: Symbol) -> Spread | None:
    """How the position that a tap moves stays the same over several results and taps, if that is
    all that these do.
    """
    by_tap = [(a, position) for a, position in moved.attrs if tap in position.symbols()]
    if len(by_tap) != 1:
        return None
    ((picture, position),) = by_tap
    others = position.symbols() - {tap}
    if len(others) != 1:
        return None
    (along,) = others
    are_known = (a.extent is not None and a.extent.is_const for a in (along, tap, picture))
    users = [a for a, p in moved.attrs if along in p.symbols()]
    in_taps = term.args[0].args[1].axes
    inside = moved.args[0].axes - {picture}
    if along not in term.axes - in_taps - inside or tap in inside or len(users) > 1:
        return None
    if not all(are_known) or position.coefficient(along) is not None:
        return None
    return _of_positions(position, picture, along, tap)


def _of_positions(
    position: Expression, picture: Symbol, along: Symbol, tap: Symbol
) -> Spread | None:
    """The spread of a position, by what it is for each sum of a result and a tap."""
    both = _sums(along, tap)
    by_sum = position.substitute({along: both - tap})
    if by_sum.symbols() != {both}:
        return None
    places = [int(by_sum.evaluate({both.name: t})) for t in range(upper((both,)))]
    rises = [t for t, (a, b) in enumerate(pairwise(places), 1) if a != b]
    if len(rises) < 2:
        return None
    step = rises[1] - rises[0]
    shift = -rises[0] % step
    start = places[0] - shift // step
    if step == 1 or upper((along,)) % step or (upper((tap,)) - 1) % step:
        return None
    if any(place != (t + shift) // step + start for t, place in enumerate(places)):
        return None
    return Spread(picture, along, tap, step, shift, start)


def _sums(along: Symbol, tap: Symbol) -> Symbol:
    """What results and taps come to: an axis of its own, as it is longer than that of results."""
    return part_of(along, "sum", upper((along,)) + upper((tap,)) - 1)


def _is_around(spread: Spread, conditions: tuple[Expression, ...]) -> bool:
    """Do conditions on the axis say that the position lies in the picture, and nothing else?"""
    along, tap = spread.along, spread.tap
    mine = [c for c in conditions if not c.symbols().isdisjoint((along, tap))]
    if not mine:
        return True
    both = _sums(along, tap)
    inside = all_of(mine).substitute({along: both - tap})
    if inside.symbols() != {both}:
        return False
    for t in range(upper((both,))):
        place = (t + spread.shift) // spread.step + spread.start
        if bool(inside.evaluate({both.name: t})) != (0 <= place < upper((spread.picture,))):
            return False
    return True


def _met(
    terms: Terms,
    same: Term,
    spreads: tuple[Spread, ...],
    frame: Frame,
    stored_frames: dict[Term, Frame],
) -> Term:
    """The convolution of the picture as it is; `stored_frames` takes what is stored."""
    data, taps = same.args[0].args
    added_taps = {spread.tap for spread in spreads}
    zero = terms.literal(bytes(taps.dtype.size), taps.dtype)
    meets = terms.boolean(all_of(spread.meets for spread in spreads))
    chosen = terms.pointwise("Select", (meets, taps, zero), taps.dtype)
    added = terms.reduce("Sum", added_taps, chosen, merge=False)
    copies, mets = [s.copy for s in spreads], [s.met for s in spreads]
    bound = set(same.attrs) - added_taps
    results, channels = axis_order(taps.axes - bound - added_taps), axis_order(taps.axes & bound)
    # As weights lie, those of each copy together.
    stored_frames[added] = tuple((a,) for a in (*copies, *results, *channels, *mets))
    product = terms.pointwise("Mul", (_picture(terms, data, spreads), added), same.dtype)
    result = terms.reduce("Sum", bound | {*mets}, product, merge=False)
    parts = {spread.along: (spread.place, spread.copy) for spread in spreads}
    stored_frames[result] = tuple(tuple(c for a in d for c in parts.get(a, (a,))) for d in frame)
    at = {s.place: s.along // s.step for s in spreads}
    return terms.at(result, at | {s.copy: s.along % s.step for s in spreads})


def _picture(terms: Terms, data: Term, spreads: tuple[Spread, ...]) -> Term:
    """The picture where results read it, with what is around it."""
    moved, conditions = _moved(data)
    assert moved is not None
    positions = dict(moved.attrs) | {spread.picture: spread.position for spread in spreads}
    picture = terms.at(moved.args[0], positions)
    if data.op != "Select":
        return picture
    replaced = {a for spread in spreads for a in (spread.along, spread.tap)}
    kept = (c for c in conditions if c.symbols().isdisjoint(replaced))
    inside = terms.boolean(all_of((*kept, *(spread.inside for spread in spreads))))
    return terms.pointwise("Select", (inside, picture, data.args[2]), data.dtype)
