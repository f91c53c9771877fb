"""What a rule is: a row of data in the algebra's own notation (see `notation`)."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Class(enum.IntEnum):
    """How equal both sides are.

    EXACT: the same bits for every input (a NaN is a NaN). ROUNDING: the same value in real
    arithmetic at the same accumulator precision; differs in rounding, in the sign of a zero, and
    where an intermediate of either side overflows or is NaN or infinite. DOMAIN: may be defined
    where the original is not, or keep digits that the original rounds away.
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
    """`lhs -> rhs` where the guards hold.

    `twin` is a term that the rule must leave alone, close to one it takes: the test of its guards.
    A rule that needs Python names a `handler` (of `egraph.handlers`); then lhs and rhs are for
    readers, and `example` is a term that it takes. A rule that `subsumes` makes its left side
    useless: nothing matches that again, and it is no spelling. A `last` rule runs once, when the
    others are done, and nothing else looks at what it makes.
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
