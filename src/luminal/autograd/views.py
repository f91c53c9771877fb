"""The transpose of a View: what flows back from each position of the result to the source.

`out[i] = source[map(i)]` gives `grad[p] = sum of g[i] over the i with map(i) = p`. The equations
`map(i) = p` are solved for i: variables that they determine become Expressions of p, and those
that they leave free are summed over. So the gradient of a permutation, a slice, a flip or a
reshape is a view, of a broadcast a sum, of a sliding window a sum over taps, of a diagonal a
masked read. A map that is not solved is a Scatter that adds.

Variables split into digits where the map divides them; an equation in several variables is decoded
as a mixed-radix number where no two of them can give the same p, else all but one are free. Windows
that move in steps of s and overlap meet a position p = a*s + r with every s-th tap only, which r
tells: the source's dim is split in two for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import pairwise
from math import gcd

from luminal.base.dtypes import bool_
from luminal.base.records import dataclass
from luminal.frontend.creation import position
from luminal.frontend.movement.scatter import written
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.shape.arithmetic import CACHE
from luminal.shape.expression import (
    ONE,
    TRUE,
    ZERO,
    Expression,
    Symbol,
    all_of,
    axis,
    ceil_div,
    const,
)
from luminal.shape.prove import prove
from luminal.shape.view import Shape, View, index, made

BRANCHES = 64  # of a solution: equations tried in one view


def transposed(g: Tensor, view: View, source: Shape) -> Tensor:
    """The gradient of the source, of this shape, for the gradient `g` of the view."""
    steps = tuple([_step(entry, view) for entry in view.map])
    inverse = _inverse(view, source, steps)
    if inverse is None:
        zeros = g.graph.zeros(source, dtype=g.dtype)
        if view.domain is not TRUE:
            g = where(position(g.graph, view.domain, view.shape, bool_), g, 0)
        return written(zeros, view.map, g, "add")
    read = _read(g, inverse)
    free = tuple(range(len(source) + sum(step > 1 for step in steps), len(inverse.shape)))
    total = read.sum(free) if free else read
    return _joined(total, source, steps)


def _joined(x: Tensor, shape: Shape, steps: Sequence[int]) -> Tensor:
    """The dims that were split in two, by a step, as one again."""
    if all(step == 1 for step in steps):
        return x
    entries: list[Expression] = []
    for d, (n, step) in enumerate(zip(shape, steps, strict=True)):
        position = index(d, n) if n is not ONE else ZERO
        entries += [position] if step == 1 else [position // step, position % step]
    return x.graph.wrap(x.graph.builder.view(x.value, made(x.extents, shape, entries, TRUE)))


# Without the split a gradient of windows in steps of two tests each of its taps for divisibility;
# with it a position's residue says which taps meet it, a quarter of them in two dims.
def _step(entry: Expression, view: View) -> int:
    """The step of windows that overlap, where one variable counts their taps; else 1."""
    steps: list[int] = []
    taps: list[Expression] = []
    for k, n in enumerate(view.shape):
        variable = index(k, n)
        if variable in entry.symbols():
            factor = entry.coefficient(variable)
            if factor is None or not factor.is_const:
                return 1
            if abs(factor.value) == 1:
                taps.append(n)
            else:
                steps.append(factor.value)
    step = gcd(*steps)
    is_window = len(taps) == 1 and taps[0].is_const and taps[0].value > step > 1
    return step if is_window else 1


def _read(g: Tensor, inverse: View) -> Tensor:
    """`g` through a view. Of a product of expanded values, where positions move (a convolution's
    gradient), the product of both through the view: summed, that is a matrix product again.
    """
    builder, node = g.graph.builder, g.value.node
    moves = inverse.domain is not TRUE or not all(isinstance(i, Symbol) for i in inverse.map)
    if moves and node.op.name == "Mul" and all(arg.node.op.name == "View" for arg in node.args):
        factors = [builder.view(arg, inverse) for arg in node.args]
        return g.graph.wrap(builder.apply("Mul", *factors))
    return g.graph.wrap(builder.view(g.value, inverse))


def repeats(view: View, source: Shape) -> bool:
    """Does the view read elements of the source several times, so that its gradient is a sum?"""
    inverse = _inverse(view, source, (1,) * len(source))
    return inverse is not None and len(inverse.shape) > len(source)


@lru_cache(CACHE)
def _inverse(view: View, source: Shape, steps: tuple[int, ...]) -> View | None:
    """The view of `g` over the source's dims, split in two where their steps are not 1, and, behind
    them, the free variables; None where the equations are not solved.
    """
    if ZERO in view.shape or ZERO in source:
        return None
    try:
        return _System.of(view, source, steps).inverse()
    except _UnsolvedError:
        return None


class _UnsolvedError(Exception):
    """An equation that no rule applies to."""


# The transpose of an index map is a gather where the equations can be solved, and a sum that only
# visits what contributes. Where they cannot, a scatter would always do, and would add up in one
# order only.
@dataclass(slots=True)
class _System:
    """Equations `left = right`: left in the variables of the result, right in the source's position
    and in free variables. `digits` writes each variable of the result in unknowns.
    """

    view: View
    source: Shape
    steps: tuple[int, ...]
    digits: dict[Symbol, Expression] = field(default_factory=dict)
    extents: dict[Symbol, Expression] = field(default_factory=dict)  # of the unknowns
    solved: dict[Symbol, Expression] = field(default_factory=dict)
    free: list[Symbol] = field(default_factory=list)
    conditions: list[Expression] = field(default_factory=list)

    @classmethod
    def of(cls, view: View, source: Shape, steps: tuple[int, ...]) -> _System:
        """The unknowns: digits of the result's variables."""
        system = cls(view, source, steps)
        for k, n in enumerate(view.shape):
            variable = index(k, n)
            number: Expression = ZERO
            points = [ONE, *_split_points(variable, n, view), n]
            for j, (low, high) in enumerate(pairwise(points)):
                extent = high.exact_div(low)
                assert extent is not None
                if extent is not ONE:
                    digit = axis(f"o{k}.{j}", extent)
                    system.extents[digit] = extent
                    number = number + digit * low
            system.digits[variable] = number
        return system

    def inverse(self) -> View:
        """Solves all equations; raises _UnsolvedError."""
        equations = [
            self._isolated(entry.substitute(self.digits), position)
            for entry, position in zip(self.view.map, self._positions(), strict=True)
        ]
        waiting = self._recombined(equations)
        while waiting:
            waiting.sort(key=lambda pair: len(self._unknowns(pair[0].substitute(self.solved))))
            self._solve(*waiting.pop(0))
        for unknown, extent in self.extents.items():
            if unknown not in self.solved:
                self.solved[unknown] = self._new_free(extent)
        indices = [self.digits[index(k, n)] for k, n in enumerate(self.view.shape)]
        domain = self.view.domain.substitute(self.digits)
        conditions = [*self.conditions, domain]
        shape = (*self._dims(), *(f.extent for f in self.free if f.extent is not None))
        return made(
            self.view.shape,
            shape,
            [i.substitute(self.solved) for i in indices],
            all_of(c.substitute(self.solved) for c in conditions),
        )

    def _dims(self) -> Shape:
        """The source's dims, those with a step split in two."""
        pairs = zip(self.source, self.steps, strict=True)
        split = [(n,) if s == 1 else (ceil_div(n, s), const(s)) for n, s in pairs]
        return tuple(n for dims in split for n in dims)

    def _positions(self) -> list[Expression]:
        """The position in each dim of the source."""
        indices = iter([index(d, n) if n is not ONE else ZERO for d, n in enumerate(self._dims())])
        return [next(indices) if s == 1 else next(indices) * s + next(indices) for s in self.steps]

    def _new_free(self, extent: Expression) -> Expression:
        if extent is ONE:
            return ZERO
        position = index(len(self._dims()) + len(self.free), extent)
        self.free.append(position)
        return position

    def _unknowns(self, left: Expression) -> list[Symbol]:
        """The symbols of an equation that are not solved yet, in a fixed order."""
        return sorted((s for s in left.symbols() if s in self.extents), key=lambda s: s.sort_key)

    def _isolated(self, left: Expression, right: Expression) -> tuple[Expression, Expression]:
        """`c * (F % m) + d = a` as `F % m = (a - d) // c`, and likewise of quotients."""
        if len(left.terms) != 1 or left.terms[0][0].op not in ("mod", "floordiv"):
            return left, right
        term, factor = left.terms[0]
        distance = right - left.constant if factor > 0 else left.constant - right
        if abs(factor) != 1:
            self.conditions.append((distance % abs(factor)).eq(ZERO))
        return term, distance // abs(factor)

    def _recombined(
        self, equations: list[tuple[Expression, Expression]]
    ) -> list[tuple[Expression, Expression]]:
        """`r + F // m = a` and `F % m = b` as `r*m + F = a*m + b`, until there are no such pairs.

        `(r + F // m) % k = a` likewise gives `(r*m + F) % (k*m) = a*m + b`.
        """
        waiting = list(equations)
        for _ in range(BRANCHES):
            pair = next(_quotient_and_rest(waiting), None)
            if pair is None:
                break
            (high, a), (low, b) = pair
            number, modulus = low.args
            whole, *cycle = high.args if high.op == "mod" else (high,)
            left = (whole - number // modulus) * modulus + number
            waiting = [equation for equation in waiting if equation not in pair]
            waiting.append((left % (cycle[0] * modulus) if cycle else left, a * modulus + b))
            self.conditions += [b >= 0, b < modulus]
        return waiting

    def _solve(self, left: Expression, right: Expression) -> None:
        left = left.substitute(self.solved)
        unknowns = self._unknowns(left)
        if not unknowns:
            self.conditions.append(left.eq(right))
            return
        if left.op == "floordiv":
            number, divisor = left.args
            self._solve(number, right * divisor + self._new_free(divisor))
            return
        if left.op == "mod":
            number, modulus = left.args
            self.conditions += [right >= 0, right < modulus]
            least, span = self._range(number, unknowns)
            if prove(span < modulus):
                self._solve(number, least + (right - least) % modulus)
                return
            first = least // modulus
            count = (least + span) // modulus - first + 1
            self._solve(number, (self._new_free(count) + first) * modulus + right)
            return
        self._solve_affine(left, right, unknowns)

    def _solve_affine(self, left: Expression, right: Expression, unknowns: list[Symbol]) -> None:
        """`sum of c*u + rest = right`, the c of any sign."""
        rest, factors = self._affine(left, unknowns)
        number = right - rest  # = sum of factors * unknowns
        mirrored = [u for u, factor in factors.items() if prove(factor < 0)]
        for u in mirrored:  # c*u = c*(n-1) - c*(n-1-u)
            number = number - factors[u] * (self.extents[u] - 1)
            factors[u] = -factors[u]
        for u in self._overlapping(factors):
            factor, extent = factors.pop(u), self.extents[u]
            step = self._common_step(factors) if factor is ONE else 1
            if step == 1:
                value = self._new_free(extent)
                number = number - factor * value
            else:  # which of the taps is known but for a multiple of the step
                block = self._new_free(ceil_div(extent, step))
                value = block * step + number % step
                self.conditions.append(value < extent)
                number = (number // step - block) * step
            self._set(u, value, mirrored)
        self._decode(number, factors, mirrored)

    def _common_step(self, factors: Mapping[Symbol, Expression]) -> int:
        """The step of a split dim that divides these factors; 1 where there is none."""
        constants = [factor.value for factor in factors.values() if factor.is_const]
        step = gcd(*constants) if len(constants) == len(factors) else 1
        return step if step in self.steps else 1

    def _affine(
        self, left: Expression, unknowns: Sequence[Symbol]
    ) -> tuple[Expression, dict[Symbol, Expression]]:
        """What is free of unknowns, and their factors; raises _UnsolvedError."""
        rest, factors = left, dict[Symbol, Expression]()
        for u in unknowns:
            factor = left.coefficient(u)
            if factor is None or not _known_sign(factor):
                raise _UnsolvedError
            rest = rest - factor * u
            factors[u] = factor
        if any(s in self.extents for s in rest.symbols()):
            raise _UnsolvedError
        return rest, factors

    def _range(
        self, number: Expression, unknowns: Sequence[Symbol]
    ) -> tuple[Expression, Expression]:
        """The least value of an affine number, and how far above it others are."""
        least, factors = self._affine(number, unknowns)
        span: Expression = ZERO
        for u, factor in factors.items():
            reach = factor * (self.extents[u] - 1)
            if prove(factor < 0):
                least, reach = least + reach, -reach
            span = span + reach
        return least, span

    def _set(self, u: Symbol, value: Expression, mirrored: Sequence[Symbol]) -> None:
        self.solved[u] = self.extents[u] - 1 - value if u in mirrored else value

    def _overlapping(self, factors: dict[Symbol, Expression]) -> list[Symbol]:
        """The unknowns to be left free, so that the others are digits of a number: the shortest,
        one by one.
        """
        left, out = dict(factors), []
        while not self._are_digits(left):
            u = min(left, key=lambda u: (_size(self.extents[u]), u.sort_key))
            del left[u]
            out.append(u)
        return out

    def _are_digits(self, factors: dict[Symbol, Expression]) -> bool:
        left = dict(factors)
        while len(left) > 1:
            top = self._top(left)
            if top is None:
                return False
            del left[top]
        return True

    def _top(self, factors: dict[Symbol, Expression]) -> Symbol | None:
        """The unknown whose factor is more than all the others can add up to."""
        for u, factor in factors.items():
            others: Expression = ZERO
            for v, c in factors.items():
                if v is not u:
                    others = others + c * (self.extents[v] - 1)
            if prove(factor > others):
                return u
        return None

    def _decode(
        self, number: Expression, factors: dict[Symbol, Expression], mirrored: Sequence[Symbol]
    ) -> None:
        """The digits of a number, highest first, each within its extent."""
        bound: Expression | None = None  # what is left of the number is less than this
        while factors:
            u = next(iter(factors)) if len(factors) == 1 else self._top(factors)
            assert u is not None
            factor = factors.pop(u)
            extent = self.extents[u]
            digit = number // factor
            if bound is None:
                self.conditions += [number >= 0, digit < extent]
            elif bound is not factor * extent:
                self.conditions.append(digit < extent)
            self._set(u, digit, mirrored)
            number, bound = number % factor, factor
        if bound is not ONE:
            self.conditions.append(number.eq(ZERO))


def _known_sign(factor: Expression) -> bool:
    return bool(prove(factor > 0) or prove(factor < 0))


def _size(extent: Expression) -> float:
    return extent.value if extent.is_const else float("inf")


def _quotient_and_rest(
    equations: Sequence[tuple[Expression, Expression]],
) -> Iterator[tuple[tuple[Expression, Expression], tuple[Expression, Expression]]]:
    """Pairs of equations with the left sides r + F // m, or that modulo some k, and F % m."""
    for low in equations:
        if low[0].op == "mod":
            number, modulus = low[0].args
            quotient = (number // modulus, 1)
            for high in equations:
                whole = high[0].args[0] if high[0].op == "mod" else high[0]
                if high is not low and quotient in whole.terms:
                    yield high, low


def _split_points(variable: Symbol, extent: Expression, view: View) -> list[Expression]:
    """The divisors at which the map takes digits of a variable, each a multiple of the last."""
    divisors: set[Expression] = set()
    for entry in (*view.map, view.domain):
        _collect(entry, variable, divisors)
    points: list[Expression] = []
    for point in sorted(divisors, key=_size):
        last = points[-1] if points else ONE
        inside = last.divides(point) and point.divides(extent)
        if point is not last and inside and point is not extent:
            points.append(point)
    return points


def _collect(entry: Expression, variable: Symbol, divisors: set[Expression]) -> None:
    stack = [entry]
    while stack:
        e = stack.pop()
        if variable not in e.symbols():
            continue
        if e.op in ("floordiv", "mod") and e.args[0] is variable:
            divisors.add(e.args[1])
        elif e.op == "mod" and e.args[0].op == "floordiv" and e.args[0].args[0] is variable:
            divisors.update((e.args[0].args[1], e.args[0].args[1] * e.args[1]))
        elif e is not variable:
            stack.extend(e.args)
