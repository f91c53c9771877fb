"""Bounds of loops from conditions: against trying every position."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from luminal.algebra.terms import Term, Terms
from luminal.base.dtypes import bool_, dtype_of, float32
from luminal.kernel.guards import (
    SHORT_PIECE,
    cut_points,
    guarded,
    ranges,
    relaxed_range,
    strict_range,
    whole_vectors,
)
from luminal.shape.expression import Expression, Symbol, all_of, axis, const, opaque, symbol

EXTENT = 7
I, J = axis("i", EXTENT), axis("j", 5)
LANE = axis("lane", 4)
S = symbol("s", 0, 9)
VALUES = range(10)  # of S
Interval = tuple[Expression, Expression]


def positions(found: Interval, env: Mapping[str, int]) -> set[int]:
    """The positions of a range that starts and stops somewhere."""
    return set(range(found[0].evaluate(env), found[1].evaluate(env)))


def true_at(condition: Expression, loop: Symbol, env: Mapping[str, int]) -> set[int]:
    return {i for i in range(EXTENT) if condition.evaluate({**env, loop.name: i})}


# --- exact ranges ---------------------------------------------------------------------------------

EXACT = [
    I < 3,
    I <= 3,
    I >= 2,
    I > 2,
    I < S,
    I <= S,
    I >= S,
    I > S,
    I + S < 6,
    S - I <= 2,
    I * 1 - S >= -3,
    all_of([I >= 2, I < 5]),
    all_of([I >= S, I < S + 2]),
    all_of([I < 4, I < S]),
    all_of([I > 1, I >= S]),
]


@pytest.mark.parametrize("condition", EXACT, ids=str)
def test_a_range_is_just_where_the_condition_holds(condition: Expression) -> None:
    found = ranges(condition, {I: const(EXTENT)}, {})
    assert found is not None
    for s in VALUES:
        assert positions(found[I], {"s": s}) == true_at(condition, I, {"s": s})


def test_each_part_bounds_its_own_loop() -> None:
    condition = all_of([I < S, J >= 2, J < 4])
    found = ranges(condition, {I: const(EXTENT), J: const(5)}, {})
    assert found is not None
    for s in VALUES:
        both = set(itertools.product(*(positions(found[k], {"s": s}) for k in (I, J))))
        assert both == {
            (i, j)
            for i, j in itertools.product(range(EXTENT), range(5))
            if condition.evaluate({"i": i, "j": j, "s": s})
        }


@pytest.mark.parametrize(
    "condition",
    [
        I.ne(3),
        I.eq(3),
        I < J,  # two loops in one part
        S < 3,  # no loop
        2 * I < S,  # a coefficient
        -2 * I < S,
        I * S < 6,
        I * I < 6,
        (I % 4) < 2,
        all_of([I < 3, (I % 2).eq(0)]),
    ],
    ids=str,
)
def test_what_is_no_range_is_refused(condition: Expression) -> None:
    assert ranges(condition, {I: const(EXTENT), J: const(5)}, {}) is None


def test_a_bound_may_not_differ_within_a_tile() -> None:
    assert ranges(I < LANE, {I: const(EXTENT)}, {LANE: 4}) is None
    assert ranges(I < LANE, {I: const(EXTENT)}, {}) is not None


# --- ranges over a box ----------------------------------------------------------------------------

PARTS = [
    I + LANE < 6,
    I - LANE < 2,
    LANE - I <= 1,
    (I // 2) < 2,
    (I + LANE) // 3 < 2,
    I - 2 * LANE >= 0,
    2 * LANE - I < S,
    I + LANE >= S,
    I - LANE > S - 4,
    LANE < S,
    S <= LANE + 3,
    I < 5,
]
BOXES = [(0, 3), (1, 2), (2, 2)]


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize(
    "parts", [[p] for p in PARTS] + [PARTS[:2], PARTS[2:4], PARTS[4:6]], ids=str
)
def test_strict_and_relaxed_ranges(parts: list[Expression], box: tuple[int, int]) -> None:
    """Where it holds for all lanes, and outside of where it holds for any: one part is exact."""
    condition = all_of(parts)
    bounds = {LANE: (const(box[0]), const(box[1]))}
    relaxed = relaxed_range(condition, I, const(EXTENT), bounds)
    strict = strict_range(condition, I, const(EXTENT), bounds)
    alone = [strict_range(part, I, const(EXTENT), bounds) for part in parts]
    assert (strict is None) == any(found is None for found in alone)
    lanes = range(box[0], box[1] + 1)
    for s in VALUES:
        held = [true_at(condition, I, {"s": s, "lane": lane}) for lane in lanes]
        some, every = set().union(*held), set(range(EXTENT)).intersection(*held)
        around = positions(relaxed, {"s": s})
        assert around >= some
        if strict is not None:
            inside = positions(strict, {"s": s})
            assert inside <= every
            if len(parts) == 1:
                assert inside == every
        if len(parts) == 1:
            decided = I in condition.symbols()
            assert around == some or not decided


def test_a_box_may_move_with_other_symbols() -> None:
    bounds = {LANE: (S, S + 2)}
    relaxed = relaxed_range(I <= LANE, I, const(EXTENT), bounds)
    strict = strict_range(I <= LANE, I, const(EXTENT), bounds)
    assert strict is not None
    for s in range(4):
        assert positions(relaxed, {"s": s}) == {i for i in range(EXTENT) if i <= s + 2}
        assert positions(strict, {"s": s}) == {i for i in range(EXTENT) if i <= s}


@pytest.mark.parametrize("condition", [I.ne(2), 2 * I < S, (LANE % 2) < I, I * LANE < 4], ids=str)
def test_what_bounds_nothing(condition: Expression) -> None:
    bounds = {LANE: (const(0), const(3))}
    assert relaxed_range(condition, I, const(EXTENT), bounds) == (const(0), const(EXTENT))
    assert strict_range(condition, I, const(EXTENT), bounds) is None
    both = all_of([condition, I < 4])
    assert positions(relaxed_range(both, I, const(EXTENT), bounds), {}) == set(range(4))
    assert strict_range(both, I, const(EXTENT), bounds) is None


def test_a_part_that_is_decided_for_the_box() -> None:
    """LANE < 4 holds for all of it, LANE < 0 for none."""
    bounds = {LANE: (const(0), const(3))}
    wide = symbol("wide", -9, 9)
    for part, holds in ((wide < 4, True), (wide < 0, False)):
        for both in (relaxed_range, strict_range):
            found = both(part, I, const(EXTENT), {wide: bounds[LANE]})
            assert found is not None
            assert positions(found, {}) == (set(range(EXTENT)) if holds else set())


# --- cuts -----------------------------------------------------------------------------------------


def pieces(points: Iterable[Expression], extent: int, env: Mapping[str, int]) -> list[range]:
    ends = [0, *(p.evaluate(env) for p in points), extent]
    return [range(a, b) for a, b in itertools.pairwise(ends)]


@pytest.mark.parametrize(
    ("conditions", "points"),
    [
        ([I < 3], [3]),
        ([I <= 3], [4]),
        ([I >= 3], [3]),
        ([I > 3], [4]),
        ([3 * I < 7], [3]),
        ([3 * I >= 6], [2]),
        ([7 - 2 * I >= 0], [4]),
        ([I < 3, I >= 5], [3, 5]),
        ([all_of([I >= 2, I < 5])], [2, 5]),
        ([~all_of([I >= 2, I < 5])], [2, 5]),
        ([I < 3, I >= 3], [3]),
        ([I < 9, I >= 0], []),
        ([I < 1], []),  # it reads i == 0
        ([I < 6], [6]),
        ([J < 3], []),
        ([I + J < 5], [1, 5]),  # for all j up to 0, for none from 5
        ([I - J >= 1], [1, 5]),
        ([I.ne(3)], []),
        ([I * I < 9], []),
        ([I * S < 9], []),
        ([S < 3], []),
    ],
    ids=str,
)
def test_cut_points(conditions: list[Expression], points: list[int]) -> None:
    found = cut_points(conditions, I, const(EXTENT))
    assert [point.value for point in found] == points


def test_pieces_are_decided_wherever_all_is_literal() -> None:
    rng = random.Random(0)
    for _ in range(200):
        conditions = []
        for _ in range(rng.randint(1, 3)):
            left = rng.choice([-3, -2, -1, 1, 2, 3]) * I + rng.choice([-2, -1, 0, 0, 1]) * J
            conditions.append(rng.choice([left < rng.randint(-9, 9), left <= rng.randint(-9, 9)]))
        found = cut_points(conditions, I, const(EXTENT))
        ends = [point.value for point in found]
        assert ends == sorted(set(ends))
        assert all(0 < end < EXTENT for end in ends)
        for condition in conditions:
            if condition.op not in ("le", "lt"):
                continue
            sure = [
                {bool(condition.evaluate({"i": i, "j": j})) for j in range(5)}
                for i in range(EXTENT)
            ]
            changes = {
                i for i in range(1, EXTENT) if (len(sure[i]) == 1) != (len(sure[i - 1]) == 1)
            }
            changes |= {i for i in range(1, EXTENT) if sure[i].isdisjoint(sure[i - 1])}
            assert changes <= set(ends)


@pytest.mark.parametrize(
    ("condition", "cut"),
    [
        (I < S, S),
        (I >= S, S),
        (I <= S, S + 1),
        (S < I, S + 1),
        (I + 2 < S, S - 2),
        (S - I > 3, S - 3),
    ],
    ids=str,
)
def test_a_cut_that_depends_on_a_dim(condition: Expression, cut: Expression) -> None:
    (point,) = cut_points([condition], I, const(EXTENT))
    for s in VALUES:
        assert point.evaluate({"s": s}) == min(max(cut.evaluate({"s": s}), 0), EXTENT)
        for piece in pieces([point], EXTENT, {"s": s}):
            assert len({bool(condition.evaluate({"s": s, "i": i})) for i in piece}) <= 1


def test_one_cut_that_depends_on_dims_or_none() -> None:
    t = symbol("t", 0, 9)
    assert cut_points([I < S, t > I], I, const(EXTENT)) == []
    assert cut_points([I < S, I < 3], I, const(EXTENT)) == []
    assert len(cut_points([I < S, I >= S], I, const(EXTENT))) == 1
    assert cut_points([2 * I < S], I, const(EXTENT)) == []


def test_what_another_loop_takes_part_in_is_cut_where_all_of_it_is_decided() -> None:
    t = symbol("t", 4, 5)
    found = cut_points([t >= I + J], I, const(EXTENT))  # holds up to 0, fails from 6
    assert [point.value for point in found] == [1, 6]
    assert cut_points([I + J <= S], I, const(EXTENT)) == []


def test_a_loop_without_an_end_decides_one_side_only() -> None:
    other = axis("k", opaque("count", 0))
    for condition, cut in ((I + other < 5, 5), (I - other >= 2, 2)):
        assert [point.value for point in cut_points([condition], I, const(EXTENT))] == [cut]


def test_an_extent_that_depends_on_dims_takes_no_literal_cuts() -> None:
    loop = axis("n", S)
    assert cut_points([loop < 3], loop, S) == []
    (point,) = cut_points([loop + 2 < S], loop, S)
    assert [point.evaluate({"s": s}) for s in (0, 2, 5)] == [0, 0, 3]


@pytest.mark.parametrize(
    ("points", "lanes", "extent", "expected"),
    [
        ([100], 16, 200, [100]),
        ([3], 16, 200, [16]),  # near the start: up to whole vectors
        ([16], 16, 200, [16]),
        ([63], 16, 200, [64]),
        ([64], 16, 200, [64]),
        ([65], 16, 200, [65]),
        ([199], 16, 200, [192]),  # near the end: down
        ([136], 16, 200, [136]),
        ([136, 65], 16, 200, [65, 136]),
        ([1], 1, 200, [1]),
        ([137], 16, 200, [128]),
        ([3, 197], 16, 200, [16, 192]),
        ([3, 5], 16, 200, [16]),
        ([60], 16, 128, [64]),
        ([60], 16, 127, []),  # no room for two pieces
        ([8], 8, 64, [8]),
        ([], 16, 200, []),
        ([191], 16, 192, [176]),
        ([192, 0], 16, 192, []),  # the ends are no cuts
    ],
)
def test_whole_vectors(points: list[int], lanes: int, extent: int, expected: list[int]) -> None:
    assert SHORT_PIECE == 4
    found = whole_vectors(map(const, points), lanes, extent)
    assert [point.value for point in found] == expected


def test_a_cut_of_a_dim_stays_where_it_is() -> None:
    assert whole_vectors([S + 1], 16, 200) == [S + 1]
    assert whole_vectors([S + 1], 16, 20) == [S + 1]


# --- guarded reductions ---------------------------------------------------------------------------


def reduction(
    op: str, other: float, condition: Expression | None = None, dtype: str = "f32"
) -> Term:
    """`op` over Select(i < 3, i, other)."""
    terms, of = Terms(), dtype_of(dtype)
    x = terms.index(I + 1, of)
    chosen = terms.literal(np.array(other, of.numpy).tobytes(), of)
    holds = terms.index(I < 3 if condition is None else condition, bool_)
    return terms.reduce(op, (I,), terms.pointwise("Select", (holds, x, chosen), of))


@pytest.mark.parametrize(
    ("op", "other", "dtype", "is_guarded"),
    [
        ("Sum", 0.0, "f32", True),
        ("Sum", 1.0, "f32", False),
        ("Sum", -np.inf, "f32", False),
        ("Max", -np.inf, "f32", True),
        ("Max", 0.0, "f32", False),
        ("Max", -(2**31), "i32", True),
        ("Max", 0, "i32", False),
        ("Sum", 0, "i32", True),
    ],
)
def test_a_reduction_is_guarded_by_what_it_starts_from(
    op: str, other: float, dtype: str, is_guarded: bool
) -> None:
    term = reduction(op, other, dtype=dtype)
    found = guarded(term)
    assert (found is not None) == is_guarded
    if found is not None:
        assert found == term.args[0].args[:2]


def test_other_reductions_have_no_guard() -> None:
    terms = Terms()
    x = terms.index(I + 1, float32)
    zero = terms.literal(np.float32(0).tobytes(), float32)
    holds = terms.pointwise("LessThan", (x, zero), bool_)
    assert guarded(terms.reduce("Sum", (I,), x)) is None
    compared = terms.pointwise("Select", (holds, x, zero), float32)
    assert guarded(terms.reduce("Sum", (I,), compared)) is None
    condition = terms.index(I < 3, bool_)
    chosen = terms.pointwise("Select", (condition, x, terms.index(I, float32)), float32)
    assert guarded(terms.reduce("Sum", (I,), chosen)) is None
