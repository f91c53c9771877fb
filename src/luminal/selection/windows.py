"""What windows read: sums and maxima over taps of a picture, and products with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from luminal.algebra.frames import upper
from luminal.algebra.terms import Frame, Index, Literal, Phase, Reduction, Term
from luminal.base.records import dataclass
from luminal.shape.expression import Expression, Symbol, axis


def part_of(a: Symbol, role: str, extent: int) -> Symbol:
    """An axis that stands for another one, or for a part of it, in such a role.

    The name has the extent: windows of several sizes over one picture make several of one role,
    and a text knows axes by their names.
    """
    return axis(f"{a.name}.{role}{extent}", extent)


@dataclass(frozen=True, slots=True)
class Slide:
    """The positions at which a window reads along an axis of a picture: a sum of axes times
    literals, and a rest.
    """

    steps: Mapping[Symbol, int]
    least: int
    most: int

    @property
    def extent(self) -> int:
        """The number of all positions that are read, those of the zeros around included."""
        return self.most - self.least + 1


@dataclass(frozen=True, slots=True)
class View:
    """A picture as one reduction reads it: `base` at `positions`, `outside` of its extents a
    literal. `slides` are the axes whose positions depend on results and taps.
    """

    data: Term
    base: Term
    positions: Mapping[Symbol, Expression]
    slides: Mapping[Symbol, Slide]
    outside: Term | None

    @property
    def overlaps(self) -> bool:
        """Does the window read positions again, or outside, or leave some out? Else all of the base
        is read once, as the taps of a transposed convolution are.
        """
        return any(slide.extent != upper(slide.steps) for slide in self.slides.values())

    def along(self, result: Symbol) -> Symbol:
        """The axis of the picture along which the window moves with an axis of results."""
        return next((a for a, p in self.positions.items() if result in p.symbols()), result)


def views(term: Reduction, shapes: Mapping[Term, Frame]) -> Iterator[View]:
    """The views of pictures that a reduction reads through a window."""
    (x,) = term.args
    for data in x.args if x.op == "Mul" else (x,):
        view = view_of(term, data)
        if view is not None and memory(view.base, shapes) is not None:
            yield view


def view_of(term: Reduction, data: Term) -> View | None:
    inner, condition, outside = data, None, None
    if data.op == "Select" and isinstance(data.args[0], Index):
        condition, inner, outside = data.args
        if not isinstance(outside, Literal):
            return None
    if inner.op != "At" or len(inner.args) != 1 or inner.phase is not Phase.RUN:
        return None
    positions = dict(inner.attrs)
    slides: dict[Symbol, Slide] = {}
    bound = frozenset(term.attrs)
    for a, position in positions.items():
        slide = _slide(position)
        if slide is None or a.extent is None or not a.extent.is_const:
            return None
        if slide.steps.keys() & bound and slide.steps.keys() & term.axes:
            slides[a] = slide
    inside = {c for a in slides for c in (positions[a] >= 0, positions[a] < a.extent)}
    if condition is not None:
        test = condition.attrs
        if not inside.issuperset(test.args if test.op == "and" else (test,)):
            return None
    others = {s for a, p in positions.items() if a not in slides for s in p.symbols()}
    if not slides or not others.isdisjoint({s for x in slides.values() for s in x.steps}):
        return None
    return View(data, inner.args[0], positions, slides, outside)


def _slide(position: Expression) -> Slide | None:
    """The steps of a position, if it is a sum of axes times literals."""
    steps: dict[Symbol, int] = {}
    least = most = 0
    rest = position
    for symbol in position.symbols():
        factor = position.coefficient(symbol)
        extent = symbol.extent
        if factor is None or not factor.is_const or extent is None or not extent.is_const:
            return None
        steps[symbol] = factor.value
        rest -= symbol * factor
        reach = factor.value * (extent.value - 1)
        least, most = least + min(reach, 0), most + max(reach, 0)
    return Slide(steps, least + rest.value, most + rest.value) if rest.is_const else None


def base_of(data: Term) -> Term:
    return (data.args[1] if data.op == "Select" else data).args[0]


def memory(base: Term, shapes: Mapping[Term, Frame]) -> Frame | None:
    """The dimensions of what is read from memory for a picture."""
    while base.is_pointwise and base not in shapes:
        inner = [arg for arg in base.args if arg.axes == base.axes]
        if len(inner) != 1:
            return None
        (base,) = inner
    frame = shapes.get(base)
    if base.is_leaf or base.is_opaque:
        frame = base.attrs.frame if base.is_leaf else base.attrs.result
    return frame


def by_steps(position: Expression, among: Collection[Symbol]) -> list[Symbol]:
    """The axes among some that a position depends on, the one of the largest steps first."""

    def step(a: Symbol) -> int:
        factor = position.coefficient(a)
        return abs(factor.value) if factor is not None and factor.is_const else 0

    return sorted(position.symbols() & frozenset(among), key=lambda a: (-step(a), a.sort_key))
