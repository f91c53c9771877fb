"""Maxima of monotone functions, and Select that is a Maximum."""

from luminal.base.numerics import DOMAIN, EXACT, ROUNDING
from luminal.rules.rule import Rule

RULES = (
    # J and K may share axes, unlike those of sums: a maximum taken twice is the same.
    Rule("max-of-max", "Max(J, Max(K, x))", "Max(J | K, x)", EXACT,
         twin="Max({i}, Sum({k}, x[i, k]))"),
    Rule("max-nests", "Max(J | K, x), Max(K, x)", "Max(J, Max(K, x))", EXACT, handler="nest",
         example="Max({i, k}, x[i, k]) + Max({k}, x[i, k])",
         twin="Max({i, k}, x[i, k]) + Max({k}, y[i, k])"),
    # A maximum over nothing is -inf, also of a value that does not depend on the axis.
    Rule("max-of-broadcast", "Max(K, x)", "Max(K & axes(x), x)", EXACT,
         ("growth(K - axes(x) != {})", "nonempty(K - axes(x))"), "Max({k}, x[i, k])"),
    # Addition of floats is monotone, rounded or not; of integers it wraps.
    Rule("max-of-sum", "Max(K, x + c)", "Max(K, x) + c", ROUNDING,
         ("K & axes(c) == {}", "nonempty(K)", "float(x)"), "Max({k}, x[k] + c[k])"),
    # A negative c would make it a minimum.
    Rule("max-of-scaled", "Max(K, x * c)", "Max(K, x) * c", ROUNDING,
         ("positive(c)", "float(x)"), "Max({k}, x[k] * -2)"),
    Rule("max-of-maximum", "Max(K, Maximum(x, y))", "Maximum(Max(K, x), Max(K, y))", EXACT,
         twin="Max({k}, x[k] + y[k])"),
    # Over nothing the one is -inf, the other exp(-inf) = 0.
    Rule("max-of-exp", "Max(K, Exp(x))", "Exp(Max(K, x))", ROUNDING, ("nonempty(K)",),
         "Max({empty}, Exp(x[empty]))"),
    Rule("max-of-exp2", "Max(K, Exp2(x))", "Exp2(Max(K, x))", ROUNDING, ("nonempty(K)",),
         "Max({empty}, Exp2(x[empty]))"),
    # One negative x makes the left side NaN, while the right one sees the greatest.
    Rule("max-of-log", "Max(K, Log(x))", "Log(Max(K, x))", DOMAIN, ("nonempty(K)",),
         "Max({empty}, Log(x[empty]))"),
    Rule("max-of-sqrt", "Max(K, Sqrt(x))", "Sqrt(Max(K, x))", DOMAIN, ("nonempty(K)",),
         "Max({empty}, Sqrt(x[empty]))"),
    # Where c is NaN no x is less, so the Select is x and the Maximum NaN.
    Rule("select-as-maximum", "Select(x < c, c, x)", "Maximum(x, c)", ROUNDING,
         ("number(c)",), "Select(x[i] < y[i], y[i], x[i])"),
)  # fmt: skip
