"""Casts that change nothing, and Casts moved above choices: fewer or narrower loads."""

from luminal.base.numerics import DOMAIN, EXACT
from luminal.rules.rule import Rule

RULES = (
    Rule("cast-to-same", "Cast(d, x)", "x", EXACT, ("dtype(d, x)",), "Cast(f64, x[i])",
         subsumes=True),
    # f32 does not hold every i32: 2**24 + 1 comes back as 2**24.
    Rule("cast-there-and-back", "Cast(d, Cast(e, x))", "x", EXACT,
         ("dtype(d, x)", "holds(e, x)"), "Cast(f32, Cast(i32, x[i]))"),
    # Within integers or within floats: i16 to i8 wraps, which a way through f32 does not.
    Rule("cast-of-wider", "Cast(d, Cast(e, x))", "Cast(d, x)", EXACT, ("widens(e, x)",),
         "Cast(i8, Cast(f32, i16(x[i])))"),
    # Not of class rounding: bf16 on the way takes 16 bits of a mantissa, not one.
    Rule("cast-through-narrower", "Cast(d, Cast(e, x))", "x", DOMAIN,
         ("dtype(d, x)", "floating(d)", "floating(e)"), "Cast(f32, Cast(i32, x[i]))"),
    Rule("select-of-casts", "Select(c, Cast(d, x), Cast(d, y))", "Cast(d, Select(c, x, y))",
         EXACT, ("alike(x, y)",), "Select(bool(c[i]), Cast(f64, x[i]), Cast(f64, i32(y[i])))"),
)  # fmt: skip
