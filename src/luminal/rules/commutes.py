"""Operands of these change places; associativity is never a free rule."""

from luminal.base.numerics import EXACT
from luminal.rules.rule import Rule

# With associativity free as well, a sum of n terms would have a class for each of 2**n subsets.
RULES = (
    Rule("add-commutes", "x + y", "y + x", EXACT, twin="x[i] / y[i]"),
    Rule("mul-commutes", "x * y", "y * x", EXACT, twin="x[i] / y[i]"),
    Rule("maximum-commutes", "Maximum(x, y)", "Maximum(y, x)", EXACT, twin="x[i] < y[i]"),
    Rule("equal-commutes", "x == y", "y == x", EXACT, twin="x[i] < y[i]"),
    Rule("and-commutes", "x & y", "y & x", EXACT, twin="bool(x[i]) | bool(y[i])"),
    Rule("or-commutes", "x | y", "y | x", EXACT, twin="bool(x[i]) & bool(y[i])"),
    Rule("xor-commutes", "x ^ y", "y ^ x", EXACT, twin="bool(x[i]) & bool(y[i])"),
)
