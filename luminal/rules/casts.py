"""Casts that change nothing, and Casts moved above choices: fewer or narrower loads."""

from luminal.numerics import DOMAIN, EXACT
from luminal.rules.rule import Rule

RULES = (
    Rule("cast-to-same", "Cast(d, x)", "x", EXACT, ("dtype(d, x)",), "Cast(f64, x[i])",
         subsumes=True),
    Rule("cast-there-and-back", "Cast(d, Cast(e, x))", "x", EXACT,
         ("dtype(d, x)", "holds(e, x)"), "Cast(f32, Cast(i32, x[i]))"),
    Rule("cast-of-wider", "Cast(d, Cast(e, x))", "Cast(d, x)", EXACT, ("widens(e, x)",),
         "Cast(i8, Cast(f32, i16(x[i])))"),
    Rule("cast-through-narrower", "Cast(d, Cast(e, x))", "x", DOMAIN,
         ("dtype(d, x)", "floating(d)", "floating(e)"), "Cast(f32, Cast(i32, x[i]))"),
    Rule("select-of-casts", "Select(c, Cast(d, x), Cast(d, y))", "Cast(d, Select(c, x, y))",
         EXACT, ("alike(x, y)",), "Select(bool(c[i]), Cast(f64, x[i]), Cast(f64, i32(y[i])))"),
)  # fmt: skip
