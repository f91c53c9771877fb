"""Laws of reductions over axes, each against sums and maxima that NumPy makes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from luminal.algebra.evaluate import Evaluator
from luminal.algebra.reductions import (
    around,
    cut,
    longest,
    may_leave,
    only_inside,
    without_points,
)
from luminal.algebra.terms import Terms
from luminal.base.dtypes import float32, int64
from luminal.hlir.monoid import MAXIMUM, SUM, Monoid
from luminal.shape.expression import TRUE, Expression, Symbol, all_of, axis, const, symbol

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


POINTS = [
    (C.eq(3), (C,), ()),
    (all_of((const(2).eq(C), A < B)), (C,), ()),
    (all_of((C.eq(B + 1), B.eq(A))), (B, C), ()),
    ((A + C).eq(4), (C,), ()),  # on which side of the other axis it stands
    (C.eq(B + 4), (C,), ()),  # outside for most B
    (C.eq(A * 7 - 2), (C,), ()),
    (C.eq(B), (B, C), (B, C)),  # one of two walked axes: neither is known
    ((C * 2).eq(B), (C,), (C,)),  # every other: not one position
    (C < 3, (C,), (C,)),
    (all_of((A + 1 <= C, C < A + 2)), (C,), ()),
    (all_of((A + 1 <= C, C < A + 3)), (C,), (C,)),  # two positions
    (all_of((A <= C, B >= C)), (C,), (C,)),
]


@pytest.mark.parametrize("monoid", [SUM, MAXIMUM], ids=lambda monoid: monoid.combine)
@pytest.mark.parametrize(("condition", "bound", "left"), POINTS, ids=str)
def test_what_a_mask_fixes_is_read_not_walked(
    condition: Expression, bound: tuple[Symbol, ...], left: tuple[Symbol, ...], monoid: Monoid
) -> None:
    terms = Terms()
    x = terms.index(A * 100 + B * 10 + C + 1, int64)
    nothing = terms.literal(monoid.identity_bytes(int64), int64)
    masked = terms.pointwise("Select", (terms.boolean(condition), x, nothing), int64)
    walked, found = without_points(terms, bound, masked, monoid)
    assert walked == left
    evaluator = Evaluator({}, {}, wide=False)
    frame = tuple((a,) for a in (A, B, C) if a not in bound)
    want = evaluator.tensor(terms.reduce(monoid.reduction, bound, masked), frame)
    got = evaluator.tensor(terms.reduce(monoid.reduction, walked, found), frame)
    np.testing.assert_array_equal(got, want)


def test_a_sum_of_minus_zero_is_zero() -> None:
    terms = Terms()
    data = np.array(-0.0, np.float32)
    masked = only_inside(terms, C.eq(3), terms.literal(data.tobytes(), float32), SUM)
    walked, found = without_points(terms, (C,), masked, SUM)
    assert not walked
    assert not np.signbit(Evaluator({}, {}, wide=False).value(found))
