"""What a rule is: a row of data in the algebra's own notation (see `notation`)."""

from __future__ import annotations

import enum
from dataclasses import dataclass


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

NUMERICS = {"exact": EXACT, "standard": ROUNDING, "relaxed": DOMAIN}
"""The widest class of rules that each choice of numerics allows."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`lhs -> rhs` where the guards hold. Without a guard the rule would be wrong, or, if it is
    marked `growth(...)`, the e-graph larger for nothing.

    `twin` is a term that the rule must leave alone, close to one it takes: the test of its guards.
    A rule that needs Python names a `handler` (of `egraph.handlers`), which asks the guards; then
    lhs and rhs are for readers, and `example` is a term that it takes. A rule that `subsumes` makes
    its left side useless: nothing matches that again, and it is no spelling. A `last` rule runs
    once, when the others are done, and nothing else looks at what it makes.
    """

    name: str
    lhs: str
    rhs: str
    kind: Class
    guards: tuple[str, ...] = ()
    twin: str = ""
    handler: str = ""
    example: str = ""
    subsumes: bool = False
    last: bool = False
