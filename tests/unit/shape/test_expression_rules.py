"""Every rewrite of `luminal.shape`, stated on its own and proved by z3.

Floor division is stated by its definition: for b > 0, `a // b = q` and `a % b = r` mean
`a = q*b + r` and `0 <= r < b`; the first test proves that this determines q and r. Where z3 does
not decide a rule for all divisors, it must prove it for each literal divisor up to 64.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import z3

a, b, c, f, g, m, n, x, y, u, w = z3.Ints("a b c f g m n x y u w")
q, q1, q2, r, r1, r2 = z3.Ints("q q1 q2 r r1 r2")
TIMEOUT_MS = 10_000


def divided(
    value: z3.ArithRef, by: z3.ArithRef, quotient: z3.ArithRef, rest: z3.ArithRef
) -> z3.BoolRef:
    """quotient = value // by and rest = value % by, for by > 0."""
    return z3.And(value == quotient * by + rest, rest >= 0, rest < by)


@dataclass(frozen=True)
class Rule:
    """given => claim; `lemmas` follow from `given` one by one and guide the proof."""

    name: str
    given: tuple[z3.BoolRef, ...]
    claim: z3.BoolRef
    lemmas: tuple[z3.BoolRef, ...] = ()
    divisor: z3.ArithRef = b


RULES = [
    Rule(
        "floor-division-is-unique",
        (b > 0, divided(a, b, q1, r1), divided(a, b, q2, r2)),
        z3.And(q1 == q2, r1 == r2),
        (
            z3.Implies(q1 >= q2 + 1, (q1 - q2 - 1) * b >= 0),
            z3.Implies(q2 >= q1 + 1, (q2 - q1 - 1) * b >= 0),
        ),
    ),
    # (x*b + a) // b -> x + a // b;  (x*b + a) % b -> a % b
    Rule("split", (b > 0, divided(a, b, q, r)), divided(x * b + a, b, x + q, r)),
    # k*b <= a < (k+1)*b:  a // b -> k;  a % b -> a - k*b
    Rule("period", (b > 0, n * b <= a, a < (n + 1) * b), divided(a, b, n, a - n * b)),
    # (f*a) // (f*b) -> a // b;  (f*a) % (f*b) -> f * (a % b)
    Rule(
        "common-factor",
        (b > 0, f > 0, divided(a, b, q, r)),
        divided(f * a, f * b, q, f * r),
        (f * r >= 0, f * (b - r - 1) >= 0),
    ),
    # 0 <= y < g:  (g*x + y) // (g*b) -> x // b;  (g*x + y) % (g*b) -> g * (x % b) + y
    Rule(
        "digits",
        (b > 0, g > 0, y >= 0, y < g, divided(x, b, q, r)),
        divided(g * x + y, g * b, q, g * r + y),
        (g * r >= 0, g * (b - r - 1) >= 0),
    ),
    # (x // y + n) // b -> (x + n*y) // (y*b)
    Rule(
        "nested-floordiv",
        (b > 0, y > 0, divided(x, y, q1, r1), divided(q1 + n, b, q, r)),
        divided(x + n * y, y * b, q, r * y + r1),
        (r * y >= 0, y * (b - r - 1) >= 0),
    ),
    # (x % (m*b)) // b -> (x // b) % m, as x // b is q*m + q1
    Rule(
        "floordiv-of-mod",
        (b > 0, m > 0, divided(x, m * b, q, r), divided(r, b, q1, r1)),
        z3.And(divided(x, b, q * m + q1, r1), divided(q * m + q1, m, q, q1)),
        (
            z3.Implies(q1 <= -1, (-1 - q1) * b >= 0),
            z3.Implies(q1 >= m, (q1 - m) * b >= 0),
            q1 >= 0,
            q1 < m,
        ),
    ),
    # (x % (m*b) * n + y) % b -> (x*n + y) % b
    Rule(
        "mod-of-mod",
        (b > 0, m > 0, divided(x, m * b, q, r), divided(r * n + y, b, q1, r1)),
        divided(x * n + y, b, q * m * n + q1, r1),
    ),
    # (x // b)*b + x % b -> x
    Rule("recombine", (b > 0, divided(x, b, q, r)), q * b + r == x),
    # a // -b -> (-a) // b;  a % -b -> -((-a) % b): the remainder has the divisor's sign
    Rule(
        "negative-divisor",
        (b > 0, divided(-a, b, q, r)),
        z3.And(a == q * (-b) + (-r), -r <= 0, -r > -b),
    ),
    # g*x + c >= 0 -> x + c // g >= 0
    Rule(
        "comparison-gcd",
        (g > 0, divided(c, g, q, r)),
        (g * x + c >= 0) == (x + q >= 0),
        (
            z3.Implies(x + q >= 0, g * (x + q) >= 0),
            z3.Implies(x + q <= -1, g * (-1 - x - q) >= 0),
        ),
        divisor=g,
    ),
    # x // b + y >= 0 -> x + b*y >= 0
    Rule(
        "comparison-of-a-quotient",
        (b > 0, divided(x, b, q, r)),
        (q + y >= 0) == (x + b * y >= 0),
        (
            z3.Implies(q + y >= 0, b * (q + y) >= 0),
            z3.Implies(q + y <= -1, b * (-1 - q - y) >= 0),
        ),
    ),
    # y - x // b >= 0 -> b*y + b - 1 - x >= 0
    Rule(
        "comparison-with-a-quotient",
        (b > 0, divided(x, b, q, r)),
        (y - q >= 0) == (b * y + b - 1 - x >= 0),
        (
            z3.Implies(y - q >= 0, b * (y - q) >= 0),
            z3.Implies(y - q <= -1, b * (-1 - y + q) >= 0),
        ),
    ),
    # g*x + c == 0 -> false where g does not divide c
    Rule(
        "equality-gcd",
        (g > 0, divided(c, g, q, r), r != 0),
        g * x + c != 0,
        (
            z3.Implies(x + q >= 0, g * (x + q) >= 0),
            z3.Implies(x + q <= -1, g * (-1 - x - q) >= 0),
        ),
        divisor=g,
    ),
    Rule("strict", (), (a < b) == (b - a - 1 >= 0)),
    Rule("negation", (), z3.Not(a >= 0) == (-1 - a >= 0)),
    Rule("at-upper-end", (a <= 0,), z3.And((a >= 0) == (a == 0), (a != 0) == (-1 - a >= 0))),
    Rule("at-lower-end", (a >= 0,), (a != 0) == (a - 1 >= 0)),
    Rule("tightest-and", (c <= n,), z3.And(x + c >= 0, x + n >= 0) == (x + c >= 0)),
    Rule("tightest-or", (c <= n,), z3.Or(x + c >= 0, x + n >= 0) == (x + n >= 0)),
    Rule("contradiction", (c + n < 0,), z3.Not(z3.And(x + c >= 0, -x + n >= 0))),
    Rule("covers-all", (c + n >= -1,), z3.Or(x + c >= 0, -x + n >= 0)),
    Rule("min-drop", (x <= y,), z3.If(x < y, x, y) == x),
    Rule("max-drop", (x >= y,), z3.If(x > y, x, y) == x),
    # x <= u => x // b <= u // b
    Rule(
        "floordiv-monotone",
        (b > 0, x <= u, divided(x, b, q1, r1), divided(u, b, q2, r2)),
        q1 <= q2,
        (z3.Implies(q1 >= q2 + 1, (q1 - q2 - 1) * b >= 0),),
    ),
    # b * (x // b) lies in x - b + 1 .. x
    Rule("floor-bounds", (b > 0, divided(x, b, q, r)), z3.And(b * q <= x, x - b + 1 <= b * q)),
    # a term f*x*w with f < 0, w >= 0 is least where x is greatest
    Rule(
        "replace-by-bound",
        (f < 0, w >= 0, x <= u),
        f * x * w >= f * u * w,
        (w * (u - x) >= 0, f * (w * (u - x)) <= 0),
    ),
    # facts: n*x - w*y >= m with y >= 0, w >= 0, n > 0 => x >= ceil(m / n)
    Rule(
        "cancel-with-fact",
        (n > 0, w >= 0, y >= 0, n * x - w * y >= m, divided(-m, n, q, r)),
        x >= -q,
        (w * y >= 0, n * x >= m, z3.Implies(x <= -q - 1, n * (-q - 1 - x) >= 0)),
        divisor=n,
    ),
]


def proved(given: list[z3.BoolRef], claim: z3.BoolRef) -> bool | None:
    """Does `given` imply `claim`? None if z3 ran out of time."""
    solver = z3.Solver()
    solver.set("timeout", TIMEOUT_MS)
    solver.add(*given, z3.Not(claim))
    answer = solver.check()
    return None if answer == z3.unknown else answer == z3.unsat


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_is_proved(rule: Rule) -> None:
    given = list(rule.given)
    for lemma in rule.lemmas:
        assert proved(given, lemma), f"lemma of {rule.name}: {lemma}"
        given.append(lemma)
    answer = proved(given, rule.claim)
    if answer is None:
        for literal in range(1, 65):
            assert proved([*given, rule.divisor == literal], rule.claim), (rule.name, literal)
    assert answer is not False, rule.name


def test_the_prover_refuses_a_wrong_rule() -> None:
    wrong = divided(g * x + y, g * b, q, g * r + y)
    assert proved([b > 0, g > 0, y >= 0, y <= g, divided(x, b, q, r)], wrong) is not True
