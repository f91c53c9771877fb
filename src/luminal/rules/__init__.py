"""The rules of the e-graph: named rows of data, by subject."""

from luminal.rules import (
    casts,
    commutes,
    constants,
    contractions,
    exponentials,
    identities,
    maxima,
    moves,
    sums,
)
from luminal.rules.rule import Rule

__all__ = ["RULES", "Rule"]

RULES: tuple[Rule, ...] = (
    *identities.RULES,
    *commutes.RULES,
    *constants.RULES,
    *exponentials.RULES,
    *sums.RULES,
    *contractions.RULES,
    *maxima.RULES,
    *casts.RULES,
    *moves.RULES,
)
assert len({rule.name for rule in RULES}) == len(RULES)
