"""Intervals of Expressions, and symbolic bounds such as `i <= n - 1` for an axis of extent n."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING

from luminal.shape.arithmetic import (
    CACHE,
    add,
    divide_monomial,
    exact_div,
    factors_of,
    multiply,
    scale,
    subtract,
)
from luminal.shape.division import floordiv
from luminal.shape.expression import CONDITION_OPS, ONE, Symbol, const
from luminal.shape.interval import BOOLEAN, Interval

if TYPE_CHECKING:
    from luminal.shape.expression import Expression

_INTERVAL_STEPS = 12
"""Relaxations tried for one end of an interval."""


def interval_of(e: Expression) -> Interval:
    """A sound interval; computed once per node."""
    if e.op == "const":
        return Interval(e.constant, e.constant)
    if e.op in CONDITION_OPS:
        return BOOLEAN
    if e.op == "add":
        return _sum_interval(e)
    if e.op == "mul":
        return naive(e)
    first, *others = (arg.interval for arg in e.args)
    for other in others:
        if e.op == "floordiv":
            first = first.floordiv(other)
        elif e.op == "mod":
            first = first.mod(other)
        else:
            first = first.minimum(other) if e.op == "min" else first.maximum(other)
    return first


def naive(e: Expression) -> Interval:
    """The interval from the terms one by one."""
    total = Interval(e.constant, e.constant)
    for monomial, factor in e.terms:
        total = total.plus(_monomial_interval(monomial).scaled(factor))
    return total


def _monomial_interval(monomial: Expression) -> Interval:
    if monomial._interval is None and monomial.op == "mul":
        first, *others = monomial.args
        result = first.interval
        for other in others:
            result = result.times(other.interval)
        monomial._interval = result
    return monomial.interval


def _sum_interval(e: Expression) -> Interval:
    """Terms one by one, tightened by symbolic bounds where terms of both signs may cancel."""
    # `n - 1 - i` loses in its terms one by one that i < n: a term is replaced by its bound in the
    # others' symbols, and what cancels then no longer widens the interval.
    plain = naive(e)
    signs = {factor > 0 for _, factor in e.terms}
    # Terms of one sign cancel nothing: no bound of one makes the interval narrower.
    if len(signs) < 2 or not any(_is_bounded(m) for m, _ in e.terms):
        return plain
    lo = lower_limit(e, (), _INTERVAL_STEPS)
    negative = lower_limit(scale(e, -1), (), _INTERVAL_STEPS)
    return plain.intersection(Interval(lo, None if negative is None else -negative))


@lru_cache(CACHE)
def _is_bounded(monomial: Expression) -> bool:
    if monomial.op in ("mul", "floordiv"):
        return True
    return bool(upper_bounds(monomial) or lower_bounds(monomial))


@lru_cache(CACHE)
def upper_bounds(atom: Expression) -> tuple[Expression, ...]:
    """Expressions that are never below the atom."""
    if isinstance(atom, Symbol):
        # Literal bounds are in the interval; these are for what an interval cannot say.
        if atom.extent is None or atom.extent.is_const:
            return ()
        return (subtract(atom.extent, ONE),)
    if atom.op == "mod" and not atom.args[1].is_const and atom.args[1].interval.at_least(1):
        return (subtract(atom.args[1], ONE),)
    if atom.op == "min":
        return atom.args
    # Division by a positive number, rounded down, is monotone: bounds of x give bounds of it.
    if atom.op == "floordiv" and atom.args[1].interval.at_least(1):
        x, b = atom.args
        return tuple(floordiv(bound, b) for bound in _relaxed(x, upper=True))
    return ()


@lru_cache(CACHE)
def lower_bounds(atom: Expression) -> tuple[Expression, ...]:
    """Expressions that are never above the atom."""
    if atom.op == "max":
        return atom.args
    if atom.op == "floordiv" and atom.args[1].interval.at_least(1):
        x, b = atom.args
        return tuple(floordiv(bound, b) for bound in _relaxed(x, upper=False))
    return ()


def _relaxed(x: Expression, upper: bool) -> tuple[Expression, ...]:
    """x with every bounded term replaced by its first bound; nothing if no term is bounded."""
    result = x if upper else scale(x, -1)
    for _ in range(_INTERVAL_STEPS):
        steps = _symbolic_steps(scale(result, -1))
        if not steps:
            break
        result = scale(steps[0], -1)
    result = result if upper else scale(result, -1)
    return () if result is x else (result,)


def _symbolic_steps(e: Expression) -> list[Expression]:
    """Expressions <= e: the first atom that has symbolic bounds replaced by each of them."""
    for monomial, factor in e.terms:
        for atom in factors_of(monomial):
            bounds = upper_bounds(atom) if factor < 0 else lower_bounds(atom)
            steps = [_replaced(e, monomial, factor, atom, bound) for bound in bounds]
            possible = [step for step in steps if step is not None]
            if possible:
                return possible
    return []


def _numeric_steps(e: Expression) -> list[Expression]:
    """Expressions <= e: one atom of a product replaced by an end of its interval.

    Axes and other atoms before dims, in which the bounds of the others are stated.
    """
    dims = []
    for monomial, factor in e.terms:
        for atom in factors_of(monomial) if monomial.op == "mul" else ():
            end = atom.interval.hi if factor < 0 else atom.interval.lo
            step = None if end is None else _replaced(e, monomial, factor, atom, const(end))
            if step is None:
                continue
            if isinstance(atom, Symbol) and atom.extent is None:
                dims.append(step)
            else:
                return [step]
    return dims


def _floor_steps(e: Expression) -> list[tuple[Expression, int]]:
    """(z, m) with z <= m*e, from x - b + 1 <= b * (x // b) <= x for the first such term."""
    for monomial, factor in e.terms:
        for atom in factors_of(monomial):
            if atom.op != "floordiv" or not atom.args[1].interval.at_least(1):
                continue
            x, b = atom.args
            others = divide_monomial(monomial, atom)
            assert others is not None
            multiple = b.constant // gcd(b.constant, factor) if b.is_const else 1
            weight = exact_div(scale(others, factor * multiple), b)
            if weight is None or not _monomial_interval(others).at_least(0):
                continue
            bound = x if factor < 0 else add(subtract(x, b), ONE)
            rest = scale(subtract(e, scale(monomial, factor)), multiple)
            return [(add(rest, multiply(bound, weight)), multiple)]
    return []


def _replaced(
    e: Expression, monomial: Expression, factor: int, atom: Expression, bound: Expression
) -> Expression | None:
    """e with one atom of a term replaced by its bound, if the other factors are not negative."""
    others = divide_monomial(monomial, atom)
    assert others is not None
    if not _monomial_interval(others).at_least(0):
        return None
    return add(e, scale(multiply(subtract(bound, atom), others), factor))


def lower_limit(e: Expression, facts: Sequence[Expression], steps: int) -> int | None:
    """An integer that e never goes below where every fact is >= 0; None if none is found.

    Depth first through at most `steps` expressions that bound a multiple of e from below.
    """
    # Each expression met bounds a multiple of e from below, and so does its interval. Which are
    # met, and how many, decides how good the limit is, never whether it holds.
    best: int | None = None
    work = [(e, 1)]
    seen = {e}
    while work and steps:
        steps -= 1
        current, multiple = work.pop()
        lo = naive(current).lo
        if lo is not None:
            lo = -(-lo // multiple)  # rounded up: e is an integer
            best = lo if best is None else max(best, lo)
        relaxed = _symbolic_steps(current) or _numeric_steps(current)
        following = [(step, multiple) for step in relaxed]
        following += [(step, multiple * m) for step, m in _floor_steps(current)]
        for fact in facts:
            following += _cancellations(current, multiple, fact)
        # The work is a stack: what was named first is to be looked at first.
        for item in reversed(following):
            if item[0] not in seen:
                seen.add(item[0])
                work.append(item)
    return best


def _cancellations(e: Expression, multiple: int, fact: Expression) -> list[tuple[Expression, int]]:
    """s*e - w*fact for integers s > 0 and monomials w >= 0 that cancel a term of e."""
    steps = []
    for monomial, factor in fact.terms:
        for target, count in e.terms:
            if (count > 0) != (factor > 0):
                continue
            weight = divide_monomial(target, monomial)
            if weight is None or not _monomial_interval(weight).at_least(0):
                continue
            # w*fact is never negative, so what is left is a bound of s*e from below.
            scaled = scale(e, abs(factor))
            step = subtract(scaled, scale(multiply(fact, weight), abs(count)))
            steps.append((step, multiple * abs(factor)))
    return steps
