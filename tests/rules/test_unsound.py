"""The checker of rules rejects what is wrong, each for its reason: else no other test says much."""

from __future__ import annotations

import pytest

from luminal.base.numerics import DOMAIN, EXACT, ROUNDING, Class
from luminal.rules import Rule
from tests.rules import agreement
from tests.rules.agreement import Fault
from tests.rules.checker import check, meets
from tests.rules.samples import SAMPLES


def row(lhs: str, rhs: str, kind: Class, *guards: str) -> Rule:
    return Rule(f"{lhs} -> {rhs}", lhs, rhs, kind, guards)


UNSOUND = (
    # once these five passed
    (row("x * 0", "0", ROUNDING), agreement.FOR_NAN),
    (row("x + x * -1", "0", ROUNDING), agreement.FOR_NAN),
    (row("x / x", "1", ROUNDING), agreement.FOR_NAN),
    (row("Sqrt(x) * Sqrt(x)", "x", ROUNDING), agreement.FOR_NAN),
    (row("Log(x * y)", "Log(x) + Log(y)", ROUNDING), agreement.NAN),
    # and these were rows, in a wider class, or without a guard
    (row("Max(K, Log(x))", "Log(Max(K, x))", ROUNDING, "nonempty(K)"), agreement.FOR_NAN),
    (row("Max(K, Sqrt(x))", "Sqrt(Max(K, x))", ROUNDING, "nonempty(K)"), agreement.FOR_NAN),
    (row("Max(K, Log(x))", "Log(Max(K, x))", DOMAIN), agreement.KIND),
    (row("Max(K, x + c)", "Max(K, x) + c", ROUNDING, "K & axes(c) == {}"), agreement.KIND),
    (row("Select(x < y, y, x)", "Maximum(x, y)", ROUNDING), agreement.NAN),
    (row("Select(x < y, y, x)", "Maximum(x, y)", DOMAIN), agreement.NAN),
    (row("Sum(K, a * b) * c", "Sum(K, (a * c) * b)", ROUNDING, "literal(c)"), agreement.FOR_NAN),
    (row("Sum(K, x) * s", "Sum(K, x * s)", ROUNDING, "K & axes(s) == {}"), agreement.FOR_NAN),
    (row("Sum(K, x * s)", "Sum(K, x) * s", ROUNDING, "K & axes(s) == {}"), agreement.NAN),
    # wrong in each way that there is
    (row("x + 0", "x", EXACT), agreement.BITS),
    (row("(x + y) + z", "x + (y + z)", EXACT), agreement.BITS),
    (row("x + y", "x + y * -1", ROUNDING), agreement.VALUE),
    (row("x * y", "x / y", ROUNDING), agreement.VALUE),
    (row("x + y", "Maximum(x, y) + Maximum(x, y)", ROUNDING, "integer(x)"), agreement.BITS),
    (row("Recip(x)", "Recip(Maximum(x, x * -1))", ROUNDING), agreement.VALUE),
    (row("x", "x * 1.0000005", ROUNDING), agreement.VALUE),
    (row("x / y", "x * y / (y * y)", ROUNDING), agreement.NAN),
    (row("Maximum(x, -inf)", "Exp(Log(x))", DOMAIN), agreement.NAN),
    (row("Max(K, Exp(x))", "Exp(Max(K, x))", ROUNDING), agreement.FOR_INF),
    (row("Recip(Maximum(x, 0))", "Recip(x)", ROUNDING), agreement.FOR_INF),
    (row("x * y", "x / y", ROUNDING), agreement.INF),
    (row("Recip(x * 0)", "Recip(x * 0 * -1)", ROUNDING), agreement.SIGN),
    (row("Cast(d, x)", "x", ROUNDING), agreement.TYPE),
    (row("Select(c, Cast(d, x), Cast(d, y))", "Cast(d, Select(c, x, y))", EXACT), agreement.TYPE),
    # sums that a bound axis catches, or that are counted twice
    (row("Sum(K, a * b)", "Sum(K, a) * b", ROUNDING, "nonempty(K)"), agreement.VALUE),
    (row("Sum(J, Sum(K, x))", "Sum(J | K, x)", ROUNDING), agreement.VALUE),
)


@pytest.mark.parametrize(("rule", "reason"), UNSOUND, ids=lambda p: getattr(p, "name", ""))
def test_an_unsound_rule_is_rejected(rule: Rule, reason: str) -> None:
    with pytest.raises(Fault):
        check(rule, SAMPLES)
    assert meets(reason, rule, SAMPLES)
