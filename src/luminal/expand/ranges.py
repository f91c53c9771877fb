"""What integers may be, as far as it follows from parameters and loops' bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from luminal.base.dtypes import bool_
from luminal.expand.fold import uniform
from luminal.expand.ir import Apply, Kernel, Loop, Operand, Value
from luminal.shape.interval import EVERYTHING, Interval


def is_empty(interval: Interval) -> bool:
    """Is there no such integer?"""
    return interval.lo is not None and interval.hi is not None and interval.lo > interval.hi


class Ranges:
    """Intervals by value; what is not known may be anything."""

    def __init__(self, kernel: Kernel) -> None:
        self.known: dict[int, Interval] = {}
        for param in kernel.params:
            self.known[param.value.id] = param.symbol.interval
        if kernel.lane is not None:
            self.known[kernel.lane.id] = Interval(0, kernel.lanes - 1)
        last = kernel.chunks.interval.hi
        numbers = Interval(0, None if last is None else last - 1)
        for value in (kernel.chunk, kernel.begin):
            if value is not None:
                self.known[value.id] = numbers

    def of(self, operand: Operand) -> Interval:
        """What the operand may be."""
        if isinstance(operand, Value):
            interval = self.known.get(operand.id)
            return Interval(0, 1) if operand.type.dtype is bool_ else interval or EVERYTHING
        value = uniform(operand)
        return EVERYTHING if value is None else Interval(value, value)

    def note(self, statement: Apply) -> None:
        """Learn what an operation gives; what may wrap is anything."""
        out, rule = statement.out, RULES.get(statement.op)
        if rule is None or out.type.lanes > 1 or not out.type.dtype.is_int:
            return
        interval = rule(*map(self.of, statement.args))
        dtype = out.type.dtype
        lowest = -(1 << dtype.bits - 1) if dtype.is_signed else 0
        if interval.at_least(lowest) and interval.at_most(lowest + (1 << dtype.bits) - 1):
            self.known[out.id] = interval

    def enter(self, loop: Loop) -> None:
        """Learn what a loop's index is in its body."""
        start, stop = self.of(loop.start), self.of(loop.stop)
        last = None if stop.hi is None else stop.hi - 1
        self.known[loop.index.id] = Interval(start.lo, last)


def _power(count: Interval) -> int | None:
    """2**count of a count that is known, and that a shift takes."""
    is_known = count.lo is not None and count.lo == count.hi and 0 <= count.lo < 64
    return 1 << count.lo if is_known and count.lo is not None else None


def _shifted(x: Interval, count: Interval) -> Interval:
    power = _power(count)
    return EVERYTHING if power is None else x.scaled(power)


def _shifted_down(x: Interval, count: Interval) -> Interval:
    power = _power(count)
    return EVERYTHING if power is None else x.floordiv(Interval(power, power))


def _masked(x: Interval, mask: Interval) -> Interval:
    bounds = [
        interval.hi for interval in (x, mask) if interval.at_least(0) and interval.hi is not None
    ]
    return Interval(0, min(bounds)) if bounds else EVERYTHING


def _joined(x: Interval, y: Interval) -> Interval:
    if not (x.at_least(0) and y.at_least(0)) or x.hi is None or y.hi is None:
        return EVERYTHING
    return Interval(0, (1 << max(x.hi, y.hi).bit_length()) - 1)


def _quotient(x: Interval, y: Interval) -> Interval:
    return x.floordiv(y) if x.at_least(0) and y.at_least(1) else EVERYTHING


def _remainder(x: Interval, y: Interval) -> Interval:
    if not (x.at_least(0) and y.at_least(1)):
        return EVERYTHING
    bounds = [x.hi] if y.hi is None else [x.hi, y.hi - 1]
    bounded = [bound for bound in bounds if bound is not None]
    return Interval(0, min(bounded)) if bounded else Interval(0, None)


RULES: Mapping[str, Callable[..., Interval]] = {
    "add": Interval.plus,
    "sub": lambda x, y: x.plus(y.scaled(-1)),
    "mul": Interval.times,
    "shl": _shifted,
    "shr": _shifted_down,
    "and": _masked,
    "min": Interval.minimum,
    "max": Interval.maximum,
    "or": _joined,
    "xor": _joined,
    "quotient": _quotient,
    "remainder": _remainder,
    "cast": lambda x: x,
    "select": lambda condition, x, y: x.union(y),
}
