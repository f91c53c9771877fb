"""For guards that no draw can violate alone, or that only keep the e-graph small: a term each that
just this guard forbids.
"""

Guard = tuple[str, str]
"""The name of a rule, and one of its guards."""

_WEIGHTS = ("weight(v[j, k])", "weight(w[l, k])")


def _sums(first: str, second: str, x: str = "x[i, k]") -> str:
    return f"Sum({{k}}, {x} * {first}) + Sum({{k}}, {x} * {second})"


GROWTH: dict[Guard, str] = {
    ("add-constants", "varies(x)"): "x[i] * ((2 + 3) + 4)",
    ("add-constants", "literal(c)"): "(x[i] + y[i]) + 2",
    ("add-constants", "literal(d)"): "(x[i] + 2) + y[i]",
    ("add-constants-integer", "varies(x)"): "i32(x[i]) * ((2 + 3) + 4)",
    ("add-constants-integer", "literal(c)"): "(i32(x[i]) + i32(y[i])) + 2",
    ("add-constants-integer", "literal(d)"): "(i32(x[i]) + 2) + i32(y[i])",
    ("mul-constants", "varies(x)"): "x[i] * ((2 * 3) * 4)",
    ("mul-constants", "literal(c)"): "(x[i] * y[i]) * 2",
    ("mul-constants", "literal(d)"): "(x[i] * 2) * y[i]",
    ("mul-constants-integer", "varies(x)"): "i32(x[i]) * ((2 * 3) * 4)",
    ("mul-constants-integer", "literal(c)"): "(i32(x[i]) * i32(y[i])) * 2",
    ("mul-constants-integer", "literal(d)"): "(i32(x[i]) * 2) * i32(y[i])",
    ("maximum-constants", "varies(x)"): "x[i] * Maximum(Maximum(2, 3), 4)",
    ("maximum-constants", "literal(c)"): "Maximum(Maximum(x[i], y[i]), 2)",
    ("maximum-constants", "literal(d)"): "Maximum(Maximum(x[i], 2), y[i])",
    ("sum-factor", "K - (axes(a) & axes(b)) != {}"): "Sum({k}, x[k] * y[k])",
    ("split-sum", "long(K, y)"): "Sum({p}, x[p])",
    ("split-sum", "J <= axes(x)"): "Sum({z}, x[i]) + Max({z}, x[i])",
    ("split-sum", "uncut(J)"): "Sum({z}, x[z])",
    ("split-max", "long(K, y)"): "Max({p}, x[p])",
    ("split-max", "J <= axes(x)"): "Sum({z}, x[i]) + Max({z}, x[i])",
    ("split-max", "uncut(J)"): "Max({z}, x[z])",
    ("matmul-associates", "K & axes(b) != {}"): "Sum({k}, Sum({j}, a[i, j] * b[j]) * c[k, l])",
    ("scale-weight", "weight(w)"): "Sum({k}, x[i, k] * w[k, j]) * weight(s[j])",
    ("scale-weight", "weight(s)"): "Sum({k}, x[i, k] * weight(w[k, j])) * s[j]",
    ("scale-weight", "axes(s) <= axes(w)"): "Sum({k}, x[i, k] * weight(w[k])) * weight(s[j])",
    ("mul-weights", "run(x)"): "(weight(x[i, k]) * weight(v[k])) * weight(w[k, j])",
    ("mul-weights", "weight(v)"): "(x[i, k] * v[k]) * weight(w[k, j])",
    ("mul-weights", "weight(w)"): "(x[i, k] * weight(v[k])) * w[k, j]",
    ("mul-weights", "axes(v) <= axes(w)"): "(x[i, k] * weight(v[k, j])) * weight(w[k])",
    ("add-weights", "run(x)"): "(weight(x[i, k]) + weight(v[k])) + weight(w[k, j])",
    ("add-weights", "weight(v)"): "(x[i, k] + v[k]) + weight(w[k, j])",
    ("add-weights", "weight(w)"): "(x[i, k] + weight(v[k])) + w[k, j]",
    ("add-weights", "axes(v) <= axes(w)"): "(x[i, k] + weight(v[k, j])) + weight(w[k])",
    ("scale-bias", "run(x)"): "(weight(x[i, k]) + weight(b[k])) * weight(w[k])",
    ("scale-bias", "weight(b)"): "(x[i, k] + b[k]) * weight(w[k])",
    ("scale-bias", "weight(w)"): "(x[i, k] + weight(b[k])) * w[k]",
    ("scale-bias", "axes(w) <= axes(b)"): "(x[i, k] + weight(b[k])) * weight(w[k, j])",
    ("sum-of-bias", "run(x)"): "Sum({k}, (weight(x[i, k]) + weight(b[k])) * weight(w[k, j]))",
    ("sum-of-bias", "weight(b)"): "Sum({k}, (x[i, k] + b[k]) * weight(w[k, j]))",
    ("sum-of-bias", "weight(w)"): "Sum({k}, (x[i, k] + weight(b[k])) * w[k, j])",
    ("merge-contractions", "given(y)"): "Sum({k}, x[i, k] * weight(v[j, k])) * weight(s[j]) + "
    "Sum({k}, x[i, k] * weight(w[l, k])) * weight(t[l])",
    ("merge-contractions", "run(x)"): _sums(*_WEIGHTS, "weight(x[i, k])"),
    ("merge-contractions", "weight(w)"): _sums("v[j, k]", "w[l, k]"),
    ("merge-contractions", "nonempty(J)"): _sums("weight(v[none, k])", _WEIGHTS[1]),
    ("max-of-broadcast", "K - axes(x) != {}"): "Max({k}, x[i, k])",
    ("at-of-pointwise", "run(y)"): "At(weight(x[i]) + weight(y[j]), i=3 - k)",
    ("at-of-pointwise", "moves(s)"): "At(x[i] + y[j], i=k)",
    ("at-of-reduction", "run(y)"): "At(Sum({j}, weight(x[i, j])), i=3 - k)",
    ("at-of-reduction", "moves(s)"): "At(Sum({j}, x[i, j]), i=k)",
    ("at-of-reduction", "shifts(s)"): "At(Sum({j}, x[i, j]), i=2 * k + l)",
}

WRONG: dict[Guard, str] = {
    ("sum-factors", "nonempty(K)"): "Sum({empty}, (a[i] * b[empty] / c[i]) * d[empty])",
    ("sum-of-broadcast", "nonempty(K - axes(x))"): "Sum({empty, k}, x[i, k])",
}
"""Of rules with handlers, whose left sides cannot be drawn."""
