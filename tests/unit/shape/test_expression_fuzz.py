"""Random expression trees: the canonical form means what the tree means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from luminal.shape.expression import Expression, axis, const, maximum, minimum, symbol
from luminal.shape.parse import parse
from luminal.shape.prove import prove, simplify

S = symbol("s", 1, 6)
N = symbol("n", 1, 5)
PAST = symbol("past", 0, 4)
D = symbol("d", -3, 3)
I = axis("i", 6)
J = axis("j", N)
K = axis("k", S * N)
Z = symbol("z", 0, 4)
M = axis("m", Z)
LEAVES = {x.name: x for x in (S, N, PAST, D, I, J, K, Z, M)}
Tree = Any  # ("s",) | (7,) | (op, tree, tree)


def draw_env(random: np.random.Generator) -> dict[str, int]:
    """A value of every symbol that respects intervals and extents (so z > 0, as m exists)."""
    s, n, z = int(random.integers(1, 7)), int(random.integers(1, 6)), int(random.integers(1, 5))
    return {
        "s": s,
        "n": n,
        "past": int(random.integers(0, 5)),
        "d": int(random.integers(-3, 4)),
        "i": int(random.integers(0, 6)),
        "j": int(random.integers(0, n)),
        "k": int(random.integers(0, s * n)),
        "z": z,
        "m": int(random.integers(0, z)),
    }


def divide(a: int, b: int) -> int:
    return a // b if b else 0


def modulo(a: int, b: int) -> int:
    return a % b if b else 0


MEANING: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": divide,
    "%": modulo,
    "min": min,
    "max": max,
}
COMPARE: dict[str, Callable[[int, int], int]] = {
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
}
BUILD: dict[str, Callable[[Expression, Expression], Expression]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": minimum,
    "max": maximum,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a.eq(b),
    "!=": lambda a, b: a.ne(b),
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
}
LOGIC: dict[str, Callable[[int, int], int]] = {"&": lambda a, b: a & b, "|": lambda a, b: a | b}

leaf = st.one_of(
    st.sampled_from(sorted(LEAVES)).map(lambda name: (name,)),
    st.sampled_from([-4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12, 24]).map(lambda n: (n,)),
)
trees: st.SearchStrategy[Tree] = st.recursive(
    leaf,
    lambda inner: st.tuples(
        st.sampled_from(["+", "+", "-", "*", "*", "//", "//", "%", "%", "min", "max"]), inner, inner
    ),
    max_leaves=12,
)
comparisons = st.tuples(st.sampled_from(sorted(COMPARE)), trees, trees)
conditions: st.SearchStrategy[Tree] = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["&", "|"]), inner, inner), st.tuples(st.just("~"), inner)
    ),
    max_leaves=4,
)


def build(tree: Tree) -> Expression:
    if len(tree) == 1:
        return LEAVES[tree[0]] if isinstance(tree[0], str) else const(tree[0])
    if tree[0] == "~":
        return ~build(tree[1])
    return BUILD[tree[0]](build(tree[1]), build(tree[2]))


def meaning(tree: Tree, env: dict[str, int]) -> int:
    if len(tree) == 1:
        return env[tree[0]] if isinstance(tree[0], str) else int(tree[0])
    if tree[0] == "~":
        return 1 - meaning(tree[1], env)
    table = MEANING | COMPARE | LOGIC
    return table[tree[0]](meaning(tree[1], env), meaning(tree[2], env))


def fuzz(examples: int) -> Callable[[Any], Any]:
    return settings(max_examples=examples, suppress_health_check=list(HealthCheck))


@fuzz(100)
@given(st.one_of(trees, conditions), st.integers(0, 2**32))
def test_canonical_form_means_the_tree(tree: Tree, seed: int) -> None:
    e = build(tree)
    random = np.random.default_rng(seed)
    names = tuple(LEAVES)
    function = e.compiled(names)
    for _ in range(8):
        env = draw_env(random)
        expected = meaning(tree, env)
        assert e.evaluate(env) == expected, (tree, str(e), env)
        assert e.interval.contains(expected), (tree, str(e), e.interval, env)
        assert function(*(env[name] for name in names)) == expected


@fuzz(60)
@given(st.one_of(trees, conditions))
def test_text_reads_back(tree: Tree) -> None:
    e = build(tree)
    assert parse(str(e), LEAVES) is e


@fuzz(60)
@given(st.one_of(trees, conditions))
def test_rebuilding_keeps_the_node(tree: Tree) -> None:
    e = build(tree)
    renamed = {x: symbol(x.name + "_", x.lo or 0, 100) for x in (S, D)}
    back = {new: old for old, new in renamed.items()}
    again = e.substitute(renamed).substitute(back)
    env = draw_env(np.random.default_rng(1))
    assert again.evaluate(env) == e.evaluate(env)


@fuzz(75)
@given(conditions, st.lists(conditions, max_size=2), trees, st.integers(0, 2**32))
def test_prove_and_simplify_are_sound(goal: Tree, facts: Any, tree: Tree, seed: int) -> None:
    random = np.random.default_rng(seed)
    known = [build(fact) for fact in facts]
    answer = prove(build(goal), known)
    simple = simplify(build(tree), known)
    for _ in range(30):
        env = draw_env(random)
        if all(meaning(fact, env) for fact in facts):
            if answer is not None:
                assert meaning(goal, env) == answer, (goal, facts, env)
            assert simple.evaluate(env) == meaning(tree, env), (tree, facts, str(simple), env)


@fuzz(75)
@given(st.one_of(trees, conditions), trees, st.integers(0, 2**32))
def test_substitution_means_evaluation(tree: Tree, value: Tree, seed: int) -> None:
    """Substituting a value that lies in the symbol's interval."""
    random = np.random.default_rng(seed)
    replacement = maximum(minimum(build(value), 3), -3)
    e = build(tree).substitute({D: replacement})
    for _ in range(8):
        env = draw_env(random)
        inner = max(min(meaning(value, env), 3), -3)
        assert e.evaluate(env) == meaning(tree, env | {"d": inner}), (tree, value, str(e), env)


@fuzz(75)
@given(st.one_of(trees, conditions), st.integers(0, 2**32))
def test_arrays_evaluate_elementwise(tree: Tree, seed: int) -> None:
    e = build(tree)
    random = np.random.default_rng(seed)
    envs = [draw_env(random) for _ in range(10)]
    columns = {name: np.array([env[name] for env in envs]) for name in LEAVES}
    result = np.broadcast_to(e.evaluate(columns), (10,))
    assert result.tolist() == [meaning(tree, env) for env in envs]


@fuzz(75)
@given(trees, trees)
def test_exact_div_inverts_products(a: Tree, b: Tree) -> None:
    x, y = build(a), build(b)
    quotient = (x * y).exact_div(y)
    if quotient is not None:
        assert quotient * y == x * y
    elif len(y.terms) == 1 and not y.constant:
        pytest.fail(f"{x * y} is a multiple of {y}")
