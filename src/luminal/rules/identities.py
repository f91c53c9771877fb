"""What leaves a value as it is. These subsume: the left side is never needed again."""

from luminal.base.numerics import DOMAIN, EXACT, ROUNDING
from luminal.rules.rule import Rule

# No row for x * 0: it is NaN where x is NaN or infinite, and 0 is a number.
RULES = (
    Rule("mul-one", "x * 1", "x", EXACT, twin="x[i] * 2", subsumes=True),
    Rule("div-one", "x / 1", "x", EXACT, twin="1 / x[i]", subsumes=True),
    # -0 + 0 is 0, so only -0 leaves all floats as they are, and 0 all but the sign of a zero.
    Rule("add-negative-zero", "x + -0.0", "x", EXACT, twin="x[i] + 0", subsumes=True),
    Rule("add-zero", "x + 0", "x", ROUNDING, twin="x[i] + 1", subsumes=True),
    Rule("add-zero-integer", "x + 0", "x", EXACT, ("integer(x)",), "x[i] + 0", subsumes=True),
    Rule("floordiv-one", "x // 1", "x", EXACT, ("integer(x)",), "x[i] // 1", subsumes=True),
    Rule("shl-zero", "x << 0", "x", EXACT, twin="i32(x[i]) << 1", subsumes=True),
    Rule("shr-zero", "x >> 0", "x", EXACT, twin="i32(x[i]) >> 1", subsumes=True),
    Rule("negate-twice", "(x * -1) * -1", "x", EXACT, twin="(x[i] * -1) * -2", subsumes=True),
    Rule("recip-twice", "Recip(Recip(x))", "x", ROUNDING, twin="Recip(Sqrt(x[i]))"),
    Rule("div-of-div", "1 / (1 / x)", "x", ROUNDING, twin="1 / (2 / x[i])"),
    # Literals are numbers of any dtype and True is 1: of integers x & 0 is 0, but x & 1 is not x.
    Rule("and-true", "x & True", "x", EXACT, ("boolean(x)",), "i32(x[i]) & 1", subsumes=True),
    Rule("and-false", "x & False", "False", EXACT, twin="bool(x[i]) & True", subsumes=True),
    Rule("or-false", "x | False", "x", EXACT, twin="bool(x[i]) | True", subsumes=True),
    Rule("or-true", "x | True", "True", EXACT, ("boolean(x)",), "i32(x[i]) | 1", subsumes=True),
    Rule("xor-false", "x ^ False", "x", EXACT, twin="bool(x[i]) ^ True", subsumes=True),
    Rule("and-same", "x & x", "x", EXACT, twin="bool(x[i]) & bool(y[i])", subsumes=True),
    Rule("or-same", "x | x", "x", EXACT, twin="bool(x[i]) | bool(y[i])", subsumes=True),
    Rule("maximum-same", "Maximum(x, x)", "x", EXACT, twin="Maximum(x[i], y[i])", subsumes=True),
    Rule(
        "maximum-lowest", "Maximum(x, -inf)", "x", EXACT, twin="Maximum(x[i], inf)", subsumes=True
    ),
    Rule("select-true", "Select(True, x, y)", "x", EXACT,
         twin="Select(bool(c[i]), x[i], y[i])", subsumes=True),
    Rule("select-false", "Select(False, x, y)", "y", EXACT,
         twin="Select(bool(c[i]), x[i], y[i])", subsumes=True),
    Rule("select-same", "Select(c, x, x)", "x", EXACT,
         twin="Select(bool(c[i]), x[i], y[i])", subsumes=True),
    Rule("select-again", "Select(c, Select(c, x, y), z)", "Select(c, x, z)", EXACT,
         twin="Select(bool(c[i]), Select(bool(b[i]), x[i], y[i]), z[i])", subsumes=True),
    Rule("select-again-else", "Select(c, x, Select(c, y, z))", "Select(c, x, z)", EXACT,
         twin="Select(bool(c[i]), x[i], Select(bool(b[i]), y[i], z[i]))", subsumes=True),
    Rule("sum-of-none", "Sum(K, x)", "x", EXACT, ("K == {}",), "Sum({k}, x[k])", subsumes=True),
    Rule("max-of-none", "Max(K, x)", "x", EXACT, ("K == {}",), "Max({k}, x[k])", subsumes=True),
    Rule("log-of-exp", "Log(Exp(x))", "x", ROUNDING, twin="Log(Exp2(x[i]))"),
    Rule("log2-of-exp2", "Log2(Exp2(x))", "x", ROUNDING, twin="Log2(Exp(x[i]))"),
    # Log and Sqrt are NaN below 0, which these make a number again; Exp is defined everywhere.
    Rule("exp-of-log", "Exp(Log(x))", "x", DOMAIN, twin="Exp(Log2(x[i]))"),
    Rule("exp2-of-log2", "Exp2(Log2(x))", "x", DOMAIN, twin="Exp2(Log(x[i]))"),
    Rule("square-of-sqrt", "Sqrt(x) * Sqrt(x)", "x", DOMAIN, twin="Sqrt(x[i]) * Sqrt(y[i])"),
)  # fmt: skip
