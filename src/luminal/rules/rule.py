"""What a rule is: a row of data in the algebra's own notation (see `notation`)."""

from __future__ import annotations

from luminal.base.numerics import Class
from luminal.base.records import dataclass


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
