"""How far a program may differ from its graph: classes of rewrites, and what a user allows."""

from __future__ import annotations

import enum


class Class(enum.IntEnum):
    """How equal both sides are; `tests/rules/agreement.py` says the same as a predicate.

    EXACT: the same bits for every input (a NaN is a NaN). ROUNDING: the same value in real
    arithmetic, with NaN and infinities as IEEE 754 has them, at the same accumulator precision;
    differs in rounding, in the sign of a zero, where an intermediate of either side overflows or
    rounds to 0, and, where the left side meets NaN or an infinity on its way, in whether the result
    is NaN or infinite: a number stays this number, and NaN never becomes one. DOMAIN: the right
    side may also be defined where the left one is NaN, keep digits that the left one rounds away,
    or share rounding and what is not finite with its neighbours. Integers and bools have the same
    bits in every class.
    """

    EXACT = 0
    ROUNDING = 1
    DOMAIN = 2

    def __str__(self) -> str:
        return self.name.lower()


EXACT, ROUNDING, DOMAIN = Class


class Numerics(enum.StrEnum):
    """A user's choice of how far rewrites may go."""

    EXACT = "exact"
    STANDARD = "standard"
    RELAXED = "relaxed"

    def allows(self, kind: Class) -> bool:
        """Does the user's choice allow rewrites of this class?"""
        return kind <= _WIDEST[self]


_WIDEST = {
    Numerics.EXACT: Class.EXACT,
    Numerics.STANDARD: Class.ROUNDING,
    Numerics.RELAXED: Class.DOMAIN,
}
