"""Sums of products: their order, and what moves into their operands.

What depends on Weights only (`weight`) is computed when they are set, not in runs.
"""

from luminal.base.numerics import EXACT, ROUNDING
from luminal.rules.rule import Rule

_OF_RUN = ("growth(run(x))",)

RULES = (
    # An empty sum is 0 whatever it sums: times an
    # infinite c it is NaN, and c inside of it is not met.
    Rule("matmul-associates", "Sum(K, Sum(J, a * b) * c)", "Sum(J, a * Sum(K, b * c))", ROUNDING,
         ("J & axes(c) == {}", "K & axes(a) == {}", "growth(K & axes(b) != {})",
          "nonempty(J)", "nonempty(K)"),
         "Sum({k}, Sum({j}, a[i, j, k] * b[j, k]) * c[k, l])"),
    # A finite c leaves an empty sum 0, so K may be empty.
    Rule("scale-operand", "Sum(K, a * b) * c", "Sum(K, (a * c) * b)", ROUNDING, ("number(c)",),
         "Sum({k}, a[i, k] * b[k]) * c[i]"),
    Rule("scale-weight", "Sum(K, x * w) * s", "Sum(K, x * (w * s))", ROUNDING,
         ("growth(weight(w))", "growth(weight(s))", "K & axes(s) == {}",
          "growth(axes(s) <= axes(w))", "nonempty(K)"),
         "Sum({k}, x[i, k] * weight(w[k, j])) * s[j]"),
    Rule("mul-weights", "(x * v) * w", "x * (v * w)", ROUNDING,
         (*_OF_RUN, "growth(weight(v))", "growth(weight(w))", "growth(axes(v) <= axes(w))"),
         "(x[i, k] * v[k]) * weight(w[k, j])"),
    Rule("add-weights", "(x + v) + w", "x + (v + w)", ROUNDING,
         (*_OF_RUN, "growth(weight(v))", "growth(weight(w))", "growth(axes(v) <= axes(w))"),
         "(x[i, k] + v[k]) + weight(w[k])"),
    Rule("scale-bias", "(x + b) * w", "x * w + b * w", ROUNDING,
         (*_OF_RUN, "growth(weight(b))", "growth(weight(w))", "growth(axes(w) <= axes(b))"),
         "(x[i, k] + b[k]) * weight(w[k])"),
    Rule("sum-of-bias", "Sum(K, (x + b) * w)", "Sum(K, x * w) + Sum(K, b * w)", ROUNDING,
         (*_OF_RUN, "growth(weight(b))", "growth(weight(w))"),
         "Sum({k}, (x[i, k] + b[k]) * weight(w[k, j]))"),
    Rule("merge-contractions", "Sum(K, x * v), Sum(K, x * w)", "parts of Sum(K, x * [v, w])",
         EXACT, ("growth(given(y))", "growth(run(x))", "growth(weight(w))",
          "growth(nonempty(J))"),
         handler="merge", last=True,  # y: a sum; J: the axes that only w has
         example="Sum({k}, x[i, k] * weight(v[j, k])) + Sum({k}, x[i, k] * weight(w[l, k]))",
         twin="Sum({k}, x[i, k] * v[j, k]) + Sum({k}, x[i, k] * weight(w[l, k]))"),
)  # fmt: skip
