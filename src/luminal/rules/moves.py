"""At: reading at other indices. Pure renames are never pushed."""

from luminal.base.numerics import EXACT
from luminal.rules.rule import Rule

_MOVED = ("growth(run(y))", "growth(moves(s))")  # y: what is read; s: where

RULES = (
    Rule("at-of-at", "At(At(x, s), t)", "At(x, s of t)", EXACT, handler="compose",
         example="At(At(x[i], i=3 - j), j=2 - k)", twin="At(x[i], i=3 - j)"),
    Rule("at-of-index", "At(e, s)", "e of s", EXACT, handler="substitute",
         example="i64(x[k]) + At(Index(i * 2), i=3 - k)",
         twin="At(x[i], i=3 - j)"),
    Rule("at-of-broadcast", "At(x, s)", "x, which has none of the axes", EXACT, handler="drop",
         example="At(Select(True, x[j], y[i]), i=3 - k)", twin="At(x[i], i=3 - k)"),
    Rule("at-of-pointwise", "At(f(x, y), s)", "f(At(x, s), At(y, s))", EXACT,
         _MOVED, handler="push",
         example="At(x[i] + y[j], i=3 - k)", twin="At(x[i] + y[j], i=k)"),
    Rule("at-of-reduction", "At(Sum(K, x), s)", "Sum(K, At(x, s)) for a shift or flip", EXACT,
         (*_MOVED, "growth(shifts(s))"), handler="push_below",
         example="At(Sum({k}, x[i, k]), i=3 - k)", twin="At(Sum({k}, x[i, k]), i=2 * k + j)"),
)  # fmt: skip
