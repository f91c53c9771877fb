"""Windows reduced along one axis after the other.

The greatest of a window of K by L taps is the greatest of its columns' greatest, which the windows
beside it share:

    Max{k, l} x[o + k - p, q + l - r]  ->  Max{l} T[o, q + l],  T[o, y] = Max{k} x[o + k - p, y - r]

and so are sums, of which means are made: K + L steps in place of K * L, where that costs less than
storing T. What is read outside of x is stored with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from math import prod

from luminal.algebra.frames import upper
from luminal.algebra.terms import Axes, Frame, Literal, Reduction, Term, Terms
from luminal.base.costs import Windows
from luminal.base.numerics import ROUNDING, Numerics
from luminal.base.records import dataclass
from luminal.selection.rewrite import Respelled
from luminal.selection.windows import View, base_of, by_steps, memory, part_of, view_of
from luminal.shape.expression import Expression, Symbol, all_of

GAIN = 0.85  # of the time in one: estimates are rough
WIDE = 4  # bytes of a sum's elements, at least: between narrower ones more would be rounded


def separable(program: Respelled, costs: Windows | None, numerics: Numerics) -> Respelled:
    """The program with windows reduced one axis at a time, where that gains."""
    if costs is None:
        return program
    shapes = program.lowered.shapes
    chains: dict[Term, _Chain] = {}
    for term in program.order():
        if isinstance(term, Reduction):
            chain = _worth(term, shapes, costs, numerics)
            if chain is not None:
                chains[term] = chain
    if not chains:
        return program
    stored_frames: dict[Term, Frame] = {}

    def replaced(old: Term, same: Term) -> Term:
        if old not in chains or not isinstance(same, Reduction):
            return same
        return chains[old].reduced(program.lowered.terms, same, stored_frames)

    apart = program.rewrite(replaced)
    lowered = apart.lowered
    frames, kept = {**stored_frames, **lowered.shapes}, lowered.kept | stored_frames.keys()
    return replace(apart, lowered=replace(lowered, shapes=frames, kept=kept))


def _worth(
    term: Reduction, shapes: Mapping[Term, Frame], costs: Windows, numerics: Numerics
) -> _Chain | None:
    """The axes in the best order, where taking them one by one gains."""
    view = view_of(term, term.args[0])
    if view is None or not _may_nest(term, view, numerics):
        return None
    frame = memory(view.base, shapes)
    constant = all(a.extent is not None and a.extent.is_const for a in (*term.axes, *term.attrs))
    if frame is None or not constant:
        return None
    chains = [_Chain(term, view, order, frame) for order in permutations(view.slides)]
    best = min(chains, key=lambda chain: chain.cycles(costs))
    at_once = _cycles(upper(term.axes), upper(term.attrs), costs.load, costs)
    return best if best.cycles(costs) < GAIN * at_once else None


def _may_nest(term: Reduction, view: View, numerics: Numerics) -> bool:
    """Can the windows of the reduction be taken one axis at a time: is it the same value, has each
    axis its own taps, and is there more than one axis?
    """
    taps = [a for slide in view.slides.values() for a in slide.steps if a in term.attrs]
    if len(view.slides) < 2 or len({*taps}) < len(taps):
        return False
    if term.monoid.is_idempotent:
        return True
    is_exact = term.monoid.is_exact(term.dtype)
    allowed = is_exact or (numerics.allows(ROUNDING) and term.dtype.size >= WIDE)
    return allowed and (view.outside is None or _is_identity(term, view.outside))


def _is_identity(term: Reduction, outside: Term) -> bool:
    identity = term.monoid.identity(term.dtype)
    return isinstance(outside, Literal) and bool(outside.value == identity)


def _cycles(results: int, taps: int, load: float, costs: Windows) -> float:
    """The cycles of a unit for so many results, of so many taps each."""
    return results * (taps * (1 + load) / costs.lanes + costs.copied) + costs.launch


# A maximum over K x L taps is one over K and one over L: K + L comparisons for K * L, at the price
# of storing what lies between. Padding goes into that, so the second reduction needs no masks.
@dataclass(frozen=True, slots=True)
class _Chain:
    """A reduction taken apart: over the taps along the first axis of `order`, then the next's."""

    term: Reduction
    view: View
    order: Sequence[Symbol]
    frame: Frame

    def bound(self, a: Symbol) -> Axes:
        """What is reduced together with the taps along an axis: the first time all that no window
        passes over.
        """
        attrs = self.term.attrs
        taken = {s for axis in self.order if axis is not a for s in self.view.slides[axis].steps}
        taps = self.view.slides[a].steps
        return tuple(s for s in attrs if s in taps or (a is self.order[0] and s not in taken))

    def cycles(self, costs: Windows) -> float:
        """The cycles of a unit for all reductions of the chain."""
        slides, total = self.view.slides, 0.0
        for k, a in enumerate(self.order):
            later = self.order[k + 1 :]
            waiting = {s for b in later for s in slides[b].steps}
            waiting -= {s for b in self.order[: k + 1] for s in slides[b].steps}
            results = upper(self.term.axes - waiting) * prod(slides[b].extent for b in later)
            load = costs.load + costs.mask * (k == 0 and self.is_masked(a))
            total += _cycles(results, upper(self.bound(a)), load, costs)
        return total

    def is_masked(self, a: Symbol) -> bool:
        """Do vectors begin or end outside of the picture? Rows do so as a whole."""
        slide, order = self.view.slides[a], [s for d in self.frame for s in d]
        within = all(order.index(a) >= order.index(other) for other in self.order)
        return within and (slide.least < 0 or slide.most >= upper((a,)))

    def reduced(self, terms: Terms, same: Reduction, stored_frames: dict[Term, Frame]) -> Term:
        """The reduction of the same operand, spelled anew; `stored_frames` takes what is stored."""
        # A box filter is separable: the greatest of a window is the greatest of its columns'
        # greatest, which neighbours share. What lies between two passes has the padding in it, so
        # later ones need no masks.
        op, view = same.op, self.view
        first, *later = self.order
        at = dict(view.positions)
        at |= {b: self.along(b) + view.slides[b].least for b in later}
        inside = {a: all_of((at[a] >= 0, at[a] < _extent(a))) for a in self.order}
        base = base_of(same.args[0])
        outside = view.outside or terms.literal(bytes(base.dtype.size), base.dtype)

        def only(condition: Expression, x: Term) -> Term:
            if condition.is_const:
                return x
            return terms.pointwise("Select", (terms.boolean(condition), x, outside), x.dtype)

        x = only(inside[first], terms.at(base, at))
        x = terms.reduce(op, self.bound(first), x, merge=False)
        x = only(all_of(inside[b] for b in later), x)
        for k, b in enumerate(later, 1):
            stored_frames[x] = self.stored(self.order[k:])
            x = terms.at(x, {self.along(b): view.positions[b] - view.slides[b].least})
            x = terms.reduce(op, self.bound(b), x, merge=False)
        return x

    def along(self, a: Symbol) -> Symbol:
        """The axis that stands for one of the picture until its taps are reduced."""
        return part_of(a, "at", self.view.slides[a].extent)

    def stored(self, later: Sequence[Symbol]) -> Frame:
        """The dimensions of a partial result: those of the picture."""
        dimensions: list[Axes] = []
        for dimension in self.frame:
            axes: list[Symbol] = []
            for a in dimension:
                if a in later:
                    axes.append(self.along(a))
                else:
                    axes += by_steps(self.view.positions.get(a, a), self.term.axes)
            dimensions.append(tuple(axes))
        return tuple(d for d in dimensions if d)


def _extent(a: Symbol) -> Expression:
    assert a.extent is not None
    return a.extent
