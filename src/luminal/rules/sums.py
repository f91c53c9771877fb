"""Sums over sets of axes: merged, and rid of factors that do not depend on what is summed over."""

from luminal.base.numerics import EXACT, ROUNDING
from luminal.rules.rule import Rule

# of a value y; J: the longest axis of K
_LONG = ("growth(long(K, y))", "growth(J <= axes(x))", "growth(uncut(J))")

RULES = (
    # An axis that both have was summed away inside, and is counted by the outer sum.
    Rule("sum-of-sum", "Sum(J, Sum(K, x))", "Sum(J | K, x)", ROUNDING, ("J & K == {}",),
         "Sum({i, k}, Sum({k}, x[i, k]))"),
    Rule("sum-nests", "Sum(J | K, x), Sum(K, x)", "Sum(J, Sum(K, x))", ROUNDING,
         handler="nest", example="Sum({i, k}, x[i, k]) + Sum({k}, x[i, k])",
         twin="Sum({i, k}, x[i, k]) + Sum({k}, y[i, k])"),
    # An axis that neither has counts how often the product is summed, and would be lost.
    Rule("sum-factor", "Sum(K, a * b)",
         "Sum(K & axes(a) & axes(b), Sum(K - axes(b), a) * Sum(K - axes(a), b))", ROUNDING,
         ("K <= axes(a) | axes(b)", "growth(K - (axes(a) & axes(b)) != {})", "nonempty(K)"),
         "Sum({k}, a[k] * b[i, k])"),
    Rule("sum-factors", "Sum(K, (a * (b / c)) * d)", "a / c * Sum(K, b * d), at any depth",
         ROUNDING, ("nonempty(K)",), handler="factor_out",
         example="Sum({k}, (a[i] * b[k] / c[i]) * d[k])",
         twin="Sum({k}, (a[k] * b[k] / c[k]) * d[k])"),
    # Over nothing the one is 0, the other 0 / b, which may be 0 / 0.
    Rule("sum-of-quotient", "Sum(K, a / b)", "Sum(K, a) / b", ROUNDING,
         ("K & axes(b) == {}", "nonempty(K)"), "Sum({k}, a[k] / b[k])"),
    Rule("sum-of-broadcast", "Sum(K, x)", "extent(K - axes(x)) * Sum(K & axes(x), x)", ROUNDING,
         ("nonempty(K - axes(x))",), handler="sum_broadcast", example="Sum({i, k}, x[i])",
         twin="Sum({i}, x[i])"),
    Rule("add-of-sums", "Sum(K, a) + Sum(K, b)", "Sum(K, a + b)", ROUNDING,
         twin="Sum({k}, a[i, k]) + Sum({i, k}, b[i, k])"),
    # At x = inf, a = 1, b = -1 both sides are NaN; at a = 2 the left one is NaN, the right one inf:
    # an infinity met on the way, and no number made of NaN.
    Rule("add-of-products", "x * a + x * b", "x * (a + b)", ROUNDING,
         twin="x[i] * a[i] + y[i] * b[i]"),
    Rule("split-sum", "Sum(K, x)", "Sum(k.chunk, Sum(k.in, x)) with k = chunk * n + in", ROUNDING,
         _LONG, handler="split", example="Sum({z}, x[z])", twin="Sum({k}, x[k])"),
    Rule("split-max", "Max(K, x)", "Max(k.chunk, Max(k.in, x)) with k = chunk * n + in", EXACT,
         _LONG, handler="split", example="Max({z}, x[z])", twin="Max({k}, x[k])"),
)  # fmt: skip
