"""Integer intervals, inclusive at both ends; `None` is an unbounded end."""

from __future__ import annotations

from typing import NamedTuple


class Interval(NamedTuple):
    """The integers from `lo` to `hi`, both included; `None` means unbounded on that side."""

    lo: int | None
    hi: int | None

    def contains(self, value: int) -> bool:
        """Is `value` one of the interval's integers?"""
        return (self.lo is None or self.lo <= value) and (self.hi is None or value <= self.hi)

    def at_least(self, value: int) -> bool:
        """Is every integer of the interval >= `value`?"""
        return self.lo is not None and self.lo >= value

    def at_most(self, value: int) -> bool:
        """Is every integer of the interval <= `value`?"""
        return self.hi is not None and self.hi <= value

    def plus(self, other: Interval) -> Interval:
        """The interval of all sums of a value of this one and a value of `other`."""
        return Interval(_add(self.lo, other.lo), _add(self.hi, other.hi))

    def scaled(self, factor: int) -> Interval:
        """The products with one integer."""
        if factor == 0:
            return Interval(0, 0)
        lo = None if self.lo is None else self.lo * factor
        hi = None if self.hi is None else self.hi * factor
        return Interval(lo, hi) if factor > 0 else Interval(hi, lo)

    def times(self, other: Interval) -> Interval:
        """The interval of all products of a value of this one and a value of `other`."""
        # Extents and positions are never negative, and nearly all products are of these: their ends
        # are products of ends, also where one is open.
        if self.lo is not None and self.lo >= 0 and other.lo is not None and other.lo >= 0:
            return Interval(self.lo * other.lo, _product(self.hi, other.hi))
        if None in self or None in other:
            return self._unbounded_times(other)
        corners = [x * y for x in self for y in other if x is not None and y is not None]
        return Interval(min(corners), max(corners))

    def _unbounded_times(self, other: Interval) -> Interval:
        if ZERO in (self, other):
            return ZERO
        same_sign = (self.at_least(0) and other.at_least(0)) or (
            self.at_most(0) and other.at_most(0)
        )
        if same_sign:
            return Interval(0, None)
        opposite = (self.at_least(0) and other.at_most(0)) or (
            self.at_most(0) and other.at_least(0)
        )
        return Interval(None, 0) if opposite else EVERYTHING

    def union(self, other: Interval) -> Interval:
        """The least interval that contains both."""
        lo = None if self.lo is None or other.lo is None else min(self.lo, other.lo)
        hi = None if self.hi is None or other.hi is None else max(self.hi, other.hi)
        return Interval(lo, hi)

    def intersection(self, other: Interval) -> Interval:
        """The integers in both (`lo > hi` when there are none)."""
        lows = [x for x in (self.lo, other.lo) if x is not None]
        highs = [x for x in (self.hi, other.hi) if x is not None]
        return Interval(max(lows, default=None), min(highs, default=None))

    def minimum(self, other: Interval) -> Interval:
        """The values of min(x, y)."""
        lo = None if self.lo is None or other.lo is None else min(self.lo, other.lo)
        highs = [x for x in (self.hi, other.hi) if x is not None]
        return Interval(lo, min(highs, default=None))

    def maximum(self, other: Interval) -> Interval:
        """The values of max(x, y)."""
        return self.scaled(-1).minimum(other.scaled(-1)).scaled(-1)

    def floordiv(self, other: Interval) -> Interval:
        """The values of x // y, where division by zero gives 0."""
        parts = []
        if other.contains(0):
            parts.append(ZERO)
        positive = other.intersection(Interval(1, None))
        if positive.lo is not None and (positive.hi is None or positive.lo <= positive.hi):
            parts.append(self._over_positive(positive.lo, positive.hi))
        negative = other.scaled(-1).intersection(Interval(1, None))
        if negative.lo is not None and (negative.hi is None or negative.lo <= negative.hi):
            parts.append(self.scaled(-1)._over_positive(negative.lo, negative.hi))
        result = parts[0] if parts else ZERO
        for part in parts[1:]:
            result = result.union(part)
        return result

    def _over_positive(self, small: int, large: int | None) -> Interval:
        """x // y for 0 < small <= y <= large: extreme at the ends of y."""
        lo, hi = self
        if lo is not None:
            lo = lo // small if lo < 0 else (0 if large is None else lo // large)
        if hi is not None:
            hi = hi // small if hi >= 0 else (-1 if large is None else hi // large)
        return Interval(lo, hi)

    def mod(self, other: Interval) -> Interval:
        """The values of x % y (the sign of y), where modulo by zero gives 0."""
        lo = None if other.lo is None else min(0, other.lo + 1)
        hi = None if other.hi is None else max(0, other.hi - 1)
        if other.at_least(0) and self.at_least(0) and self.hi is not None:
            hi = self.hi if hi is None else min(hi, self.hi)
        if other.at_most(0) and self.at_most(0) and self.lo is not None:
            lo = self.lo if lo is None else max(lo, self.lo)
        return Interval(lo, hi)


ZERO = Interval(0, 0)
BOOLEAN = Interval(0, 1)
EVERYTHING = Interval(None, None)


def _add(x: int | None, y: int | None) -> int | None:
    return None if x is None or y is None else x + y


def _product(x: int | None, y: int | None) -> int | None:
    """The upper end of a product of non-negative intervals."""
    if x == 0 or y == 0:
        return 0
    return None if x is None or y is None else x * y
