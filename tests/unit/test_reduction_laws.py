"""Laws of reductions over axes, each against sums and maxima that NumPy makes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from luminal.algebra.reductions import around, cut, longest, may_leave, only_inside
from luminal.algebra.terms import Terms
from luminal.dtypes import float32
from luminal.hlir.monoid import MAXIMUM, SUM, Monoid
from luminal.shape.expression import TRUE, Symbol, axis, symbol

A, B, C = axis("a", 2), axis("b", 3), axis("c", 5)
X = np.random.default_rng(0).integers(-9, 9, (2, 3, 5))
PLACE = {A: 0, B: 1, C: 2}


def reduced(x: np.ndarray, axes: tuple[Symbol, ...]) -> np.ndarray:
    return np.asarray(x.sum(axis=tuple(PLACE[a] for a in axes), keepdims=True))


def subsets(*axes: Symbol) -> list[tuple[Symbol, ...]]:
    return [part for size in range(len(axes) + 1) for part in combinations(axes, size)]


@pytest.mark.parametrize("outer", subsets(A, B, C), ids=str)
def test_a_reduction_is_one_around_any_proper_part(outer: tuple[Symbol, ...]) -> None:
    for inner in subsets(A, B, C):
        rest = around(inner, outer)
        assert (rest is not None) is (set(inner) < set(outer))
        if rest is not None:
            nested = reduced(reduced(X, inner), rest)
            np.testing.assert_array_equal(nested, reduced(X, outer))


def test_a_factor_leaves_a_sum_whose_axes_it_lacks() -> None:
    for bound in subsets(A, B, C)[1:]:
        for own in subsets(A, B, C):
            extents = [n if a in own else 1 for a, n in ((A, 2), (B, 3), (C, 5))]
            factor = np.arange(1, 1 + np.prod(extents)).reshape(extents)
            inside, outside = reduced(X * factor, bound), factor * reduced(X, bound)
            assert may_leave(frozenset(own), bound) is (outside.shape == inside.shape)
            if outside.shape == inside.shape:
                np.testing.assert_array_equal(outside, inside)


def test_the_longest_axis_is_the_first_of_equal_ones() -> None:
    assert longest([A, C, B]) is C
    assert longest([axis("d", 5), C]).name == "d"
    assert longest([C, axis("n", symbol("n", 0, 6))]).name == "n"


@pytest.mark.parametrize(("extent", "size"), [(12, 4), (13, 4), (5, 8), (7, 1)])
def test_chunks_visit_every_position_once_and_in_order(extent: int, size: int) -> None:
    parts = cut(axis("k", extent), size)
    assert parts.chunk.extent is not None
    seen = []
    for chunk in range(parts.chunk.extent.value):
        for step in range(size):
            env = {parts.chunk.name: chunk, parts.within.name: step}
            if parts.inside.evaluate(env):
                seen.append(int(parts.position.evaluate(env)))
    assert seen == list(range(extent))
    assert (parts.inside is TRUE) is (extent % size == 0)


def test_the_axes_of_a_cut_are_named_by_it() -> None:
    k = axis("k", 12)
    assert cut(k, 4) == cut(k, 4)
    assert cut(k, 4).inner((A, k, B)) == (cut(k, 4).within, A, B)
    names = {cut(k, 4).chunk, cut(k, 3).chunk, cut(k, 4, 7).chunk, cut(k, 4, 8).chunk}
    assert len(names) == 4


@pytest.mark.parametrize("monoid", [SUM, MAXIMUM], ids=lambda monoid: monoid.reduction)
def test_outside_stands_what_adds_nothing(monoid: Monoid) -> None:
    terms = Terms()
    x = terms.literal(np.float32(3).tobytes(), float32)
    assert only_inside(terms, TRUE, x, monoid) is x
    masked = only_inside(terms, A < 1, x, monoid)
    condition, then, other = masked.args
    assert (masked.op, condition.attrs, then) == ("Select", A < 1, x)
    assert other.attrs.data == monoid.identity_bytes(float32)
