"""Guard splitting: loops stop where a condition would leave nothing to do.

A reduction of `Select(condition, x, empty)`, with `empty` what the reduction starts from, runs only
where the condition holds: masks, pads, ragged ends of split reductions become bounds of loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce

from luminal.algebra.reductions import masked
from luminal.algebra.terms import Index, Literal, Reduction, Term
from luminal.shape.condition import linear_form
from luminal.shape.expression import (
    TRUE,
    Expression,
    Symbol,
    all_of,
    const,
    maximum,
    minimum,
)

MOST_ALTERNATIVES = 4  # of a mask: each is looked at for every block
SHORT_PIECE = 4  # vectors: an end of a loop that is shorter is not worth code of its own
Range = tuple[Expression, Expression]
Box = Mapping[Symbol, Range]
"""First and last position of some symbols."""


def hull(ranges: Sequence[Range]) -> Range:
    """The range from the first position that any range has to the last."""
    lows, highs = zip(*ranges, strict=True)
    return reduce(minimum, lows), reduce(maximum, highs)


def are_empty(ranges: Sequence[Range]) -> Expression:
    """The condition that none has anything."""
    return all_of(high <= low for low, high in ranges)


def is_mask(term: Term) -> bool:
    """Is it `Select(index condition, x, 0)`?"""
    if term.op != "Select" or not isinstance(term.args[0], Index):
        return False
    other = term.args[2]
    return isinstance(other, Literal) and other.is_zero


def factors(
    product: Term, is_at_hand: Callable[[Term], bool]
) -> tuple[Term | None, tuple[Term, Term]]:
    """The factors of a product, and where they count: those that are 0 on one condition alike are
    given without it. A sum from 0 on stays the same where both are 0, so its accumulator can be
    masked instead, which costs nothing where the hardware masks results. Not where one of them lies
    in memory as it is.
    """
    a, b = product.args
    alike = is_mask(a) and is_mask(b) and a.args[0] is b.args[0]
    if alike and not is_at_hand(a) and not is_at_hand(b):
        return a.args[0], (a.args[1], b.args[1])
    return None, (a, b)


def guarded(reduction: Reduction) -> tuple[Index, Term] | None:
    """(condition, x) of a reduction over `Select(condition, x, empty)` with an index condition."""
    return masked(reduction.args[0], reduction.monoid)


def ranges(
    condition: Expression, extents: Mapping[Symbol, Expression], tiled: Mapping[Symbol, int]
) -> dict[Symbol, Range] | None:
    """The range of each loop symbol in which `condition` holds; None if it is no such range.

    `extents` has the loops to bound, `tiled` the other symbols that have no single value.
    """
    out = {symbol: (const(0), extent) for symbol, extent in extents.items()}
    for part in condition.args if condition.op == "and" else (condition,):
        if part.op not in ("le", "lt"):
            return None
        slack = linear_form(part)  # the part holds where this is >= 0
        bounded = [symbol for symbol in out if symbol in slack.symbols()]
        # An inequality of two loops is a range of neither: i + j < n cuts a corner off.
        if len(bounded) != 1:
            return None
        (symbol,) = bounded
        factor = slack.coefficient(symbol)
        if factor is None or not factor.is_const or factor.value not in (1, -1):
            return None
        rest = slack - symbol * factor
        # In a tile all positions of another loop are worked on together, and each would have
        # another bound: the loop has one for all.
        if any(s in tiled for s in rest.symbols()):
            return None
        start, stop = out[symbol]
        if factor.value < 0:
            out[symbol] = (start, minimum(stop, rest + 1))
        else:
            out[symbol] = (maximum(start, -rest), stop)
    return out


def relaxed_range(condition: Expression, step: Symbol, extent: Expression, box: Box) -> Range:
    """A range of `step` outside of which `condition` holds for no position in the box."""
    span: Range = (const(0), extent)
    for part in condition.args if condition.op == "and" else (condition,):
        bound = _part_range(part, step, extent, box, most=True)
        # A part that bounds nothing may be left out: the
        # range gets wider, and that is allowed here.
        if bound is not None:
            span = (maximum(span[0], bound[0]), minimum(span[1], bound[1]))
    return span


def alternatives(condition: Expression) -> list[Expression]:
    """Conditions without an `or`, one of which holds where this one does; itself, if these would be
    many.
    """
    parts = [condition]
    if condition.op == "or":
        parts = [part for arg in condition.args for part in alternatives(arg)]
    elif condition.op == "and":
        parts = [TRUE]
        for arg in condition.args:
            parts = [all_of((one, other)) for one in parts for other in alternatives(arg)]
    return parts if len(parts) <= MOST_ALTERNATIVES else [condition]


def strict_range(condition: Expression, step: Symbol, extent: Expression, box: Box) -> Range | None:
    """A range of `step` in which `condition` holds for all positions in the box, if it is one."""
    span: Range = (const(0), extent)
    for part in condition.args if condition.op == "and" else (condition,):
        bound = _part_range(part, step, extent, box, most=False)
        # Here the range must not be too wide, so nothing may be left out.
        if bound is None:
            return None
        span = (maximum(span[0], bound[0]), minimum(span[1], bound[1]))
    return span


def _part_range(
    part: Expression, step: Symbol, extent: Expression, box: Box, *, most: bool
) -> Range | None:
    """The range in which one inequality holds for some position in the box (`most`), or for all."""
    if part.op not in ("le", "lt"):
        return None
    slack = linear_form(part)
    for symbol, (first, last) in box.items():
        tilt = slack.coefficient(symbol)
        if tilt is None or not tilt.is_const:
            return None
        # Linear in each symbol, so it is greatest and least at ends of the box, whichever they are.
        slack = slack.substitute({symbol: last if (tilt.value > 0) is most else first})
    holds = slack >= 0
    if holds.is_const:
        return const(0), extent if holds.value else const(0)
    bound = ranges(holds, {step: extent}, {})
    return None if bound is None else bound[step]


def cut_points(
    conditions: Iterable[Expression], loop: Symbol, extent: Expression
) -> list[Expression]:
    """The positions along a loop where one of the conditions begins or ceases to be decided, in
    order.

    They are literal inside a literal extent; else there is one, which may depend on dims.
    """
    exact: set[Expression] = set()
    literal: set[int] = set()
    for condition in conditions:
        for part in _inequalities(condition):
            slack = linear_form(part)  # the part holds where this is >= 0
            factor = slack.coefficient(loop)
            if factor is None or not factor.is_const or not factor.value:
                continue
            rest = slack - loop * factor
            if all(s.extent is None for s in rest.symbols()) and not rest.is_const:
                if abs(factor.value) == 1:
                    exact.add(-rest if factor.value == 1 else rest + 1)
            else:
                literal |= _changes(rest, factor.value)
    if exact:
        # Which of two comes first is not known where one depends on dims.
        (point, *others) = exact
        return [] if others or literal else [minimum(maximum(point, 0), extent)]
    if not extent.is_const:
        return []
    return [const(n) for n in sorted(literal) if 0 < n < extent.value]


def _changes(rest: Expression, factor: int) -> set[int]:
    """The positions i from which `factor * i + rest >= 0` may hold or fail, and surely does."""
    bounds = {b for b in (rest.interval.lo, rest.interval.hi) if b is not None}
    if factor > 0:
        return {-(b // factor) for b in bounds}
    return {b // -factor + 1 for b in bounds}


def _inequalities(condition: Expression) -> Iterator[Expression]:
    if condition.op in ("and", "or", "not"):
        for part in condition.args:
            yield from _inequalities(part)
    elif condition.op in ("le", "lt"):
        yield condition


def whole_vectors(points: Iterable[Expression], lanes: int, extent: int) -> list[Expression]:
    """Cut points that leave no piece too short for vectors: near an end they move inwards."""
    moved: set[int] = set()
    for point in points:
        # One that depends on dims is the only one (`cut_points`).
        if not point.is_const:
            return [point]
        position = point.value
        # The short piece takes in some positions of the long one, and keeps a mask. Where a cut
        # lies is a matter of speed, not of right: each piece decides the conditions for itself.
        if position < SHORT_PIECE * lanes:
            position += -position % lanes
        elif extent - position < SHORT_PIECE * lanes:
            position -= position % lanes
        moved.add(position)
    positions = sorted(moved)
    long_enough = extent >= 2 * SHORT_PIECE * lanes
    return [const(n) for n in positions if 0 < n < extent] if long_enough else []
