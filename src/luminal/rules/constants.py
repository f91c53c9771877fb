"""Literals meet and fold."""

from luminal.base.numerics import EXACT, ROUNDING
from luminal.rules.rule import Rule

_BOTH = ("growth(varies(x))", "growth(literal(c))", "growth(literal(d))")

RULES = (
    Rule("fold", "op(literals)", "literal", EXACT, handler="fold", example="x[i] * (2 * 3 + 1)",
         twin="x[i] * 3 + 1"),
    Rule("add-constants", "(x + c) + d", "x + (c + d)", ROUNDING, _BOTH, "(x[i] + 2) + y[i]"),
    Rule("add-constants-integer", "(x + c) + d", "x + (c + d)", EXACT, ("integer(x)", *_BOTH),
         "(x[i] + 2) + 3"),
    Rule("mul-constants", "(x * c) * d", "x * (c * d)", ROUNDING, _BOTH, "(x[i] * 2) * y[i]"),
    Rule("mul-constants-integer", "(x * c) * d", "x * (c * d)", EXACT, ("integer(x)", *_BOTH),
         "(x[i] * 2) * 3"),
    Rule("maximum-constants", "Maximum(Maximum(x, c), d)", "Maximum(x, Maximum(c, d))", EXACT,
         _BOTH, "Maximum(Maximum(x[i], 2), y[i])"),
    # Doubling rounds nothing, and overflows on both sides.
    Rule("add-same", "x + x", "x * 2", EXACT, twin="x[i] + y[i]"),
    Rule("one-over", "1 / x", "Recip(x)", EXACT, twin="2 / x[i]"),
    # Two roundings for one.
    Rule("div-as-recip", "x / y", "x * Recip(y)", ROUNDING, twin="x[i] * y[i]"),
    Rule("recip-as-div", "x * Recip(y)", "x / y", ROUNDING, twin="x[i] * Sqrt(y[i])"),
)  # fmt: skip
