"""One base for exponentials and logarithms."""

from luminal.base.numerics import ROUNDING
from luminal.rules.rule import Rule

RULES = (
    # Times log2(e), and times ln(2): each as the dtype rounds it.
    Rule("exp-as-exp2", "Exp(x)", "Exp2(x * 1.4426950408889634)", ROUNDING, twin="Log(x[i])"),
    Rule("log-as-log2", "Log(x)", "Log2(x) * 0.6931471805599453", ROUNDING, twin="Exp(x[i])"),
    Rule("recip-of-exp", "Recip(Exp(x))", "Exp(x * -1)", ROUNDING, twin="Recip(Log(x[i]))"),
)
