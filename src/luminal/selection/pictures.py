"""Pictures laid out anew for the windows that pass over them.

A convolution with few channels has its lanes along the columns of a picture. Where these do not lie
side by side (channels last), are passed in steps, or have zeros around them, every one of its loads
is lane by lane, shuffled, or masked; and a window of K taps for M channels reads an element K * M
times. So the picture is stored once as the lanes want it,

    At(x, {y: s*o + d*k - p})  ->  At(P, {y: o + (d*k)//s, r: (d*k) % s}),  P[y, r] = x[s*y + r - p]

zeros included, columns innermost, steps of s taken apart: where that costs less than what it saves,
and no other axis is better for the lanes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, inf, prod

from luminal.algebra.frames import upper
from luminal.algebra.terms import Axes, Frame, Reduction, Term, Terms
from luminal.base.costs import Windows
from luminal.kernel.layout import filled
from luminal.kernel.loops import SHORT_STEP
from luminal.selection.rewrite import Respelled
from luminal.selection.windows import Slide, View, base_of, by_steps, memory, part_of, views
from luminal.shape.expression import Expression, Symbol, all_of

GAIN = 0.85  # of the time in place: estimates are rough
AROUND = 16  # rows of zeros, beyond which each more costs nothing


def pictures(program: Respelled, costs: Windows | None) -> Respelled:
    """The program with pictures stored as lanes want them, where that gains."""
    if costs is None:
        return program
    terms, shapes = program.lowered.terms, {**program.lowered.shapes, **_outputs(program)}
    stored_frames: dict[Term, Frame] = {}
    by_reduction: dict[Term, tuple[View, Symbol]] = {}
    for term in program.order():
        if isinstance(term, Reduction):
            for view in views(term, shapes):
                lane = _worth(term, view, shapes, costs)
                if lane is not None:
                    by_reduction[term] = view, lane
    if not by_reduction:
        return program

    def replaced(old: Term, same: Term) -> Term:
        if old not in by_reduction or not isinstance(same, Reduction):
            return same
        view, lane = by_reduction[old]
        (x,) = same.args
        (was,) = old.args
        # The operands may have been respelled on the way: the picture is that of the new ones.
        at = 0 if was is view.data else list(was.args).index(view.data)
        data = x if was is view.data else x.args[at]
        stored, read = _laid_out(terms, view, base_of(data), lane)
        stored_frames[stored] = _frame(stored, view, lane, shapes)
        if was is view.data:
            return terms.reduce(same.op, same.attrs, read, merge=False)
        factors = list(x.args)
        factors[at] = read
        product = terms.pointwise(x.op, factors, x.dtype)
        return terms.reduce(same.op, same.attrs, product, merge=False)

    laid = program.rewrite(replaced)
    lowered = laid.lowered
    frames, kept = {**stored_frames, **lowered.shapes}, lowered.kept | stored_frames.keys()
    return replace(laid, lowered=replace(lowered, shapes=frames, kept=kept))


def _outputs(program: Respelled) -> dict[Term, Frame]:
    """The dimensions of results where they are stored, and of what is computed for each of their
    elements on the way.
    """
    frames: dict[Term, Frame] = {}
    for root in program.lowered.roots:
        stack = [root.term]
        while stack:
            term = stack.pop()
            if term not in frames and term.axes == root.term.axes:
                frames[term] = root.frame
                stack += term.args if term.is_pointwise else ()
    return frames


# --- whether that is worth it


def _worth(
    term: Reduction, view: View, shapes: Mapping[Term, Frame], costs: Windows
) -> Symbol | None:
    """The axis of results that lanes should run along over a picture laid out anew, if any."""
    if not all(a.extent is not None and a.extent.is_const for a in (*term.axes, *term.attrs)):
        return None
    reading = _Reading(term, view, shapes, costs)
    moving = {s for slide in view.slides.values() for s in slide.steps}
    wanted = view.data.axes if view.overlaps else moving
    candidates = [a for a in reading.nearest if a in wanted]
    if not candidates:
        return None
    lane = min(candidates, key=reading.laid_out)
    here = min(reading.in_place(a) for a in term.axes)
    here = min(here, *(reading.in_parts(a) for a in term.attrs))
    return lane if reading.laid_out(lane) < GAIN * here else None


# Cycles are counted for each axis of results as the lanes, because the best axis depends on how the
# picture lies: channels last and few channels leave only the taps, which fill 3 of 16 lanes. A copy
# is made where it gains 15%, since the estimates are no better than that.
class _Reading:
    """Cycles of a unit for one reduction, by the axis of its lanes."""

    def __init__(
        self, term: Reduction, view: View, shapes: Mapping[Term, Frame], costs: Windows
    ) -> None:
        self.term, self.view, self.costs = term, view, costs
        frame = memory(view.base, shapes) or ()
        order = [a for dimension in frame for a in dimension]
        self.order, self.strides = order, {a: upper(order[k + 1 :]) for k, a in enumerate(order)}
        result = [a for dimension in shapes.get(term, ()) for a in dimension if upper((a,)) > 1]
        self.innermost = result[-1] if result else None
        rest = sorted(term.axes - {*result}, key=lambda a: a.sort_key)
        self.nearest = (*reversed(result), *rest)  # where results lie closest, first
        weights = [x for x in term.args[0].args if x is not view.data] if term.product else []
        self.weighed = frozenset[Symbol]().union(*(x.axes for x in weights))
        self.is_given = any(x.is_run for x in weights)
        others = term.axes - view.data.axes
        self.shared = min(costs.rows, upper(others)) if others else 1

    def steps(self, lane: Symbol, load: float) -> float:
        """The cycles of all vectors along `lane`, each of whose loads costs `load`, and of storing
        the results.
        """
        vectors = upper(self.term.axes) / (self.costs.lanes * self.used(lane))
        store = 1 if lane is self.innermost else self.costs.lanes * self.costs.across
        return vectors * (upper(self.term.attrs) * (1 + load / self.shared) + store)

    def used(self, lane: Symbol) -> float:
        """The share of the lanes at work."""
        return filled(upper((lane,)), self.costs.lanes)

    def in_place(self, lane: Symbol) -> float:
        """The cycles with lanes along `lane` and the picture as it lies."""
        # What a vector load costs is decided by the stride of its lanes: 0 is a broadcast, 1 a
        # load, a short one a shuffle of whole vectors, anything else a load for each lane.
        costs, stride, zeros, edge = self.costs, 0, 0, 0.0
        for a, position in self.view.positions.items():
            factor = position.coefficient(lane)
            step = factor.value if factor is not None and factor.is_const else 0
            stride += abs(step) * self.strides.get(a, 0)
            slide = self.view.slides.get(a)
            if slide is not None:
                outside = max(0, -slide.least) + max(0, slide.most - upper((a,)) + 1)
                zeros = max(zeros, outside if step else 0)
                edge = max(edge, 0 if step else costs.edge * min(AROUND, outside))
        if lane in self.view.base.axes and lane not in self.view.positions:
            stride += self.strides.get(lane, 0)
        if not zeros and 0 < stride == self.beside(lane):
            stride = 1
        lies = stride == 1 and lane is self.innermost
        if lane in self.weighed and self.used(lane) < costs.full and not lies:
            return inf  # no weight is packed for lanes of which many would be idle
        masks = edge + costs.mask * (zeros > 0)
        if stride == 0:
            # A scalar for all lanes, of which rows of results have one each.
            return self.steps(lane, self.shared * costs.spread + edge)
        if stride == 1:
            return self.steps(lane, costs.load + masks)
        if stride <= SHORT_STEP and (lane is self.innermost or stride == 2):
            # Whole vectors are read, if results are stored as well; where many are cut off at the
            # zeros around, each has masks of its own.
            cut = min(1, zeros / costs.lanes)
            return self.steps(lane, stride * (costs.load + 2 * costs.mask * cut) + edge)
        return self.steps(lane, costs.lanes * costs.apart + masks)

    def in_parts(self, lane: Symbol) -> float:
        """The cycles with the picture as it lies and parts of a sum in the lanes: weights lie as
        these do, where they are known before a run.
        """
        is_near = lane not in self.view.positions and self.strides.get(lane) == 1
        if not is_near or self.is_given:
            return inf
        length, costs = upper((lane,)), self.costs
        vectors = upper(self.term.attrs) // length * ceil(length / costs.lanes)
        folded = costs.lanes * costs.apart
        return upper(self.term.axes) * (costs.parts * vectors + folded)

    def beside(self, lane: Symbol) -> int:
        """The elements at one position along an axis, where these are walked with it as one: all
        channels of a pixel, say, that no weight tells apart. 0: they are not.
        """
        if self.term.product is not None:
            return 0
        moved = self.view.positions
        along = [a for a in self.order if a is lane or lane in moved.get(a, a).symbols()]
        inside = self.order[self.order.index(along[-1]) + 1 :] if along else []
        is_whole = all(a not in moved and a in self.term.axes for a in inside)
        return upper(inside) if along and is_whole else 0

    def laid_out(self, lane: Symbol) -> float:
        """The cycles with the picture stored for lanes along `lane`, the copy included."""
        if lane in self.weighed and self.used(lane) < self.costs.full:
            return inf
        sizes = (slide.extent for slide in self.view.slides.values())
        along = self.view.along(lane)
        rest = self.view.base.axes - self.view.slides.keys() - {along}
        read_axes = (
            () if along in self.view.slides else self.view.positions.get(along, along).symbols()
        )
        elements = prod(sizes) * upper(rest) * upper(read_axes)
        is_near = self.strides.get(along, 0) == 1
        copy = self.costs.copied if is_near else self.costs.turned
        return self.steps(lane, self.costs.load) + elements * copy + self.costs.launch


# --- the picture


def _laid_out(terms: Terms, view: View, base: Term, lane: Symbol) -> tuple[Term, Term]:
    """The picture to be stored, and what reads it in place of the old one."""
    at: dict[Symbol, Expression] = {}  # of the base, by axes of the picture
    read = {a: p for a, p in view.positions.items() if a not in view.slides}
    along = view.along(lane)
    if along in read:  # the picture has the results' own axes there
        at[along] = read.pop(along)
    inside: list[Expression] = []
    for a, slide in view.slides.items():
        outer, within = _axes(a, slide, lane)
        position: Expression = outer
        wanted = view.positions[a] - slide.least
        if within is None:
            read[outer] = wanted
        else:
            assert within.extent is not None
            position = outer * within.extent + within
            read[outer], read[within] = wanted // within.extent, wanted % within.extent
        at[a] = position + slide.least
        assert a.extent is not None
        inside += [c for c in (at[a] >= 0, at[a] < a.extent) if not (c.is_const and c.value)]
    picture = terms.at(base, at)
    if inside:
        outside = view.outside or terms.literal(bytes(base.dtype.size), base.dtype)
        condition = terms.boolean(all_of(inside))
        picture = terms.pointwise("Select", (condition, picture, outside), base.dtype)
    return picture, terms.at(picture, read)


def _axes(a: Symbol, slide: Slide, lane: Symbol) -> tuple[Symbol, Symbol | None]:
    """The axis of a picture that stands for one of its base, and the axis of what is between two
    lanes.
    """
    step = abs(slide.steps.get(lane, 1))
    if step == 1:
        return part_of(a, "at", slide.extent), None
    return part_of(a, "step", -(-slide.extent // step)), part_of(a, "of", step)


def _frame(picture: Term, view: View, lane: Symbol, shapes: Mapping[Term, Frame]) -> Frame:
    """The dimensions of the stored picture: those of its base, the lanes' innermost."""
    order: list[Axes] = []
    last: Axes = ()
    for dimension in memory(view.base, shapes) or ():
        for a in dimension:
            slide = view.slides.get(a)
            if slide is None and a is view.along(lane):
                within_steps = by_steps(view.positions.get(a, a), picture.axes - {lane})
                last = (*within_steps, lane)
                continue
            if slide is None:
                order.append((a,))
                continue
            along, within = _axes(a, slide, lane)
            if lane in slide.steps:
                last = (along,)
                order.append(() if within is None else (within,))
            else:
                order.append((along,))
    return (*(d for d in order if d), last)
