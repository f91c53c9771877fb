"""The bounds of the search's check: how far apart results may be, and where it looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.algebra.lower import lower
from luminal.base import dtypes
from luminal.base.dtypes import DType, bfloat16, float16, float32, float64, int32
from luminal.search import oracle
from luminal.search.distance import Distance, distance, errors
from luminal.search.operands import draw
from luminal.search.oracle import Sample, judge, near, verdict
from tests.close import close_each

Array = np.ndarray[Any, Any]
COUNT = 200
RNG = np.random.default_rng(0)
EXACT = RNG.normal(size=COUNT)
SCALE = float(np.sqrt(np.mean(np.square(EXACT))))


def sample(values: Array = EXACT, dtype: DType = float64, falls: bool = False) -> Sample:
    return Sample([np.arange(len(values))], values, dtype, falls)


def off(share: float, by: Callable[[Array], Array]) -> Array:
    """EXACT, with a share of its elements moved by what `by` gives for them."""
    found = EXACT.copy()
    count = round(share * COUNT)
    found[:count] += by(EXACT[:count])
    return found


# --- whole results, beside those of the fast program


@pytest.mark.parametrize(
    ("size", "far", "falls", "right"),
    [
        (100, 0, False, True),
        (100, 1, False, False),
        (1_000_000, 1, False, False),
        (1000, 20, True, True),  # 2% of them
        (1000, 21, True, False),
        (10, 1, True, True),  # one element may always fall
        (10, 2, True, False),
        (0, 0, False, True),
    ],
)
def test_near(size: int, far: int, falls: bool, right: bool) -> None:
    judged = near(Distance(size, far, ()), falls)
    assert judged.right == right
    assert f"{far / max(1, size):.2%} of the elements" in judged.text


def test_without_a_sample_only_the_fast_program_is_there_to_compare_with() -> None:
    wrong = Distance(COUNT, 1, (0,))
    for parts in ((None, EXACT, EXACT), (sample(), None, EXACT), (sample(), EXACT, None)):
        assert not verdict(wrong, *parts, falls=False).right
        assert verdict(wrong, *parts, falls=True).right
        assert verdict(Distance(COUNT, 0, ()), *parts, falls=False).right


def test_a_sample_decides_where_nothing_falls() -> None:
    """The distance was to a program that may err as well."""
    far = Distance(COUNT, COUNT, (0,))
    assert verdict(far, sample(), EXACT, EXACT, falls=False).right
    assert not verdict(far, sample(falls=True), EXACT, EXACT, falls=True).right
    wrong = off(0.5, lambda v: v + 1)
    assert not verdict(Distance(COUNT, 0, ()), sample(), EXACT, wrong, falls=False).right
    assert not verdict(Distance(COUNT, 0, ()), sample(falls=True), EXACT, wrong, falls=True).right


# --- elements, beside those of the oracle


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(float64, 1e-9), (float32, 1e-4), (float16, 1e-2), (bfloat16, 3e-2)]
)
def test_an_element_may_be_off_by_the_tolerance_of_its_dtype(
    dtype: DType, tolerance: float
) -> None:
    for factor, right in ((0.9, True), (1.1, False)):
        found = off(0.005, lambda v, k=factor: k * tolerance * (SCALE + np.abs(v)))
        assert judge(sample(dtype=dtype), EXACT, found).right == right


@pytest.mark.parametrize(("factor", "right"), [(3.9, True), (4.1, False)])
def test_an_element_may_be_off_by_4_times_the_largest_error_of_fast(
    factor: float, right: bool
) -> None:
    error = 1e-3
    fast = EXACT.copy()
    fast[7] += error
    assert judge(sample(), fast, off(0.005, lambda v: factor * error + 0 * v)).right == right


@pytest.mark.parametrize(("factor", "right"), [(31, True), (33, False)])
def test_an_element_may_be_off_by_32_times_the_error_of_fast_there(
    factor: float, right: bool
) -> None:
    error = 1e-3
    fast = off(0.005, lambda v: error + 0 * v)
    assert judge(sample(), fast, off(0.005, lambda v: factor * error + 0 * v)).right == right


def test_elements_that_fast_has_wrong_are_left_out() -> None:
    """A comparison fell the other way for it too; but not where it errs by rounding alone."""
    for error, right in ((0.11, True), (0.0005, False)):
        fast = off(0.005, lambda v, k=error: k * SCALE + 0 * v)
        assert judge(sample(), fast, off(0.005, lambda v: 100 * SCALE + 0 * v)).right == right
    assert judge(sample(), EXACT + SCALE, EXACT - SCALE).right  # nothing is left


@pytest.mark.parametrize(("share", "right"), [(0.02, True), (0.025, False)])
def test_some_elements_may_fall_the_other_way(share: float, right: bool) -> None:
    found = off(share, lambda v: v + 1)
    assert judge(sample(falls=True), EXACT, found).right == right
    assert not judge(sample(), EXACT, found).right


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
def test_no_element_may_be_strange_where_it_is_a_number(strange: float) -> None:
    found = EXACT.copy()
    found[11] = strange
    judged = judge(sample(dtype=float32), EXACT, found)
    assert not judged.right
    assert "0.5% of the sampled elements are off" in judged.text


@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_bounds_grow_with_the_size_of_all_elements(size: float) -> None:
    for factor, right in ((0.9, True), (1.1, False)):
        moved = off(0.005, lambda v, k=factor: k * 1e-4 * (SCALE + np.abs(v)))
        judged = judge(sample(EXACT * size, float32), EXACT * size, moved * size)
        assert judged.right == right
    judged = judge(sample(EXACT * size), EXACT * size, off(0.005, lambda v: SCALE + 0 * v) * size)
    assert judged.text == "0.5% of the sampled elements are off, by up to 1"


def test_infinities_and_nan_are_no_part_of_the_size() -> None:
    values = EXACT * 1e-6
    values[::2], values[50:60] = np.inf, np.nan
    found = values.copy()
    found[1] += 1e-9
    assert not judge(sample(values, float32), values, found).right
    assert distance(found + 1e-7, values).far > COUNT / 4


def test_infinities_do_not_widen_the_bounds() -> None:
    values = EXACT.copy()
    values[3], values[4] = np.inf, np.nan
    found = values.copy()
    assert judge(sample(values), values, found).right
    found[5] += 1e-6
    assert not judge(sample(values), values, found).right
    found[5] = values[5]
    found[3] = 1.0
    assert not judge(sample(values), values, found).right


@pytest.mark.parametrize(("count", "falls", "right"), [
    (0, False, True), (1, False, False), (4, True, True), (5, True, False),
])  # fmt: skip
def test_integers(count: int, falls: bool, right: bool) -> None:
    exact = RNG.integers(0, 9, COUNT)
    found = exact.copy()
    found[:count] += 1
    assert judge(sample(exact, int32, falls), exact, found).right == right
    assert judge(sample(exact, int32, falls), found, found).right  # those of the fast program


def test_zeros_are_compared_absolutely() -> None:
    nothing = np.zeros(COUNT)
    assert judge(sample(nothing), nothing, nothing + 0.9e-9).right
    assert not judge(sample(nothing), nothing, nothing + 1.1e-9).right
    assert judge(sample(np.zeros(0)), np.zeros(0), np.zeros(0)).right


# --- distances


def test_distances_are_relative_to_an_element_and_to_all() -> None:
    expected = np.array([1.0, -1.0, 1.0, -1.0], np.float32)  # their root mean square is 1
    for apart, far in ((0.059, 0), (0.061, 1)):
        found = expected + np.array([0, 0, apart, apart / 3], np.float32)
        assert distance(found, expected) == (4, far, (2,))


def test_distances_of_integers_infinities_and_nothing() -> None:
    rows = np.arange(6).reshape(2, 3)
    assert distance(rows, rows) == (6, 0, (0, 0))
    assert distance(rows + np.eye(2, 3, dtype=int)[::-1], rows) == (6, 2, (0, 1))
    assert distance(np.zeros((0, 3)), np.zeros((0, 3))) == (0, 0, ())
    assert distance(np.ones(3), np.zeros(3)) == (3, 3, (0,))
    strange = np.array([np.inf, -np.inf, np.nan, 1.0])
    assert distance(strange, strange) == (4, 0, (0,))
    assert distance(-strange, strange) == (4, 3, (0,))


def test_errors_of_what_is_not_finite() -> None:
    exact = np.array([np.inf, np.inf, -np.inf, np.nan, 2.0, 2.0, 2.0])
    found = np.array([np.inf, 3.0, np.inf, 5.0, np.nan, -np.inf, 1.5])
    np.testing.assert_array_equal(errors(exact, found), [0, np.inf, np.inf, 0, np.inf, np.inf, 0.5])


# --- where it looks


def sampled(build: Callable[[Any], Any], worst: tuple[int, ...], seed: int = 0) -> Sample:
    cx = lm.Graph()
    build(cx).output("y")
    graph = cx.graph()
    arrays = draw(graph, {}, {}, 0)
    return oracle.samples(lower(graph), arrays, seed, {"y": worst})["y"]


def test_corners_and_the_worst_element_are_looked_at() -> None:
    found = sampled(lambda cx: cx.tensor((100, 1, 90), name="x").exp() + 1, (41, 0, 77))
    rows, one, columns = found.positions
    assert {0, 41, 99} <= set(rows)
    assert {0, 77, 89} <= set(columns)
    assert list(one) == [0]
    assert 4 <= len(rows) <= 9
    assert 4 <= len(columns) <= 9
    assert found.values.shape == (len(rows), 1, len(columns))
    other = sampled(lambda cx: cx.tensor((100, 1, 90), name="x").exp() + 1, (41, 0, 77), seed=1)
    assert set(other.positions[0]) != set(rows)


@pytest.mark.parametrize(("shape", "each"), [((1000,), 64), ((90, 100), 8), ((9,) * 7, 2)])
def test_as_many_positions_along_each_axis_as_make_64_elements(
    shape: tuple[int, ...], each: int
) -> None:
    def build(cx: lm.Graph) -> Any:
        return cx.tensor(shape, name="x").exp()

    found = sampled(build, tuple(0 for _ in shape))
    assert [len(set(positions)) for positions in found.positions] == [each] * len(shape)


def test_every_position_may_be_looked_at() -> None:
    met: set[int] = set()
    for seed in range(40):
        found = sampled(lambda cx: cx.tensor((12, 40), name="x").exp(), (0, 0), seed)
        met |= set(found.positions[0].tolist())
    assert met == set(range(12))


def test_values_are_those_of_float64() -> None:
    cx = lm.Graph()
    cx.tensor((50, 60), name="x").exp().sum(-1).output("y")
    graph = cx.graph()
    arrays = draw(graph, {}, {}, 0)
    found = oracle.samples(lower(graph), arrays, 0, {"y": (0,)})["y"]
    exact = np.exp(arrays.inputs["x"].astype(np.float64)).sum(-1)[found.positions[0]]
    close_each(found.values, exact)


def test_few_elements_are_all_looked_at() -> None:
    found = sampled(lambda cx: cx.tensor((3, 2), name="x").exp(), (1, 1))
    assert [list(each) for each in found.positions] == [[0, 1, 2], [0, 1]]


def test_positions_of_a_dimension_of_several_axes() -> None:
    """Heads and widths in one dimension of 20 times 30: position 400 is (13, 10)."""

    def build(cx: lm.Graph) -> Any:
        x, w = cx.tensor((7, 5), name="x"), cx.tensor((20, 5, 30), name="w")
        return (x @ w).transpose(0, 1).reshape(7, 600)

    found = sampled(build, (3, 400))
    assert 400 in found.positions[1]
    assert {0, 599} <= set(found.positions[1])
    assert list(found.positions[1]) == sorted(found.positions[1])


def test_an_element_that_fell_is_not_looked_at() -> None:
    def build(cx: lm.Graph) -> Any:
        x = cx.tensor((100, 90), name="x").exp()
        return lm.where(x < 1.5, x, -x)

    for worst in ((41, 77), (42, 78)):
        found = sampled(build, worst)
        assert found.falls
        assert worst[0] not in found.positions[0] or worst[1] not in found.positions[1]


FALLS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "given": (lambda x: lm.where(x < 0.5, x, -x), False),
    "a part of what is given": (lambda x: (x[:2].cast("float64") < 0.5).cast("float32"), False),
    "computed": (lambda x: lm.where(x * 0.3 < 0.5, x, -x), True),
    "a floor": (lambda x: (x * 0.3).floor(), True),
    "an integer": (lambda x: (x * 0.3).cast("int32"), True),
    "another float": (lambda x: (x * 0.3).cast("float64"), False),
    "an order": (lambda x: (x * 0.3).sort(-1)[1], True),
    "bits": (lambda x: (x * 0.3).bitcast("int32"), True),
    "a remainder": (lambda x: (x * 0.3) % 2.0, True),
    "arithmetic": (lambda x: (x * 0.3).exp().sum(-1), False),
    "integers alone": (lambda x: lm.where(x.shape[0] * 2 > 3, x, -x), False),
    "in a Loop": (
        lambda x: lm.scan(lambda c, t: (lm.where(c * 0.3 < t, c, -c), c), x[0], x)[1], True
    ),
    "a Loop of arithmetic": (lambda x: lm.scan(lambda c, t: (c * 0.3 + t, c), x[0], x)[1], False),
}  # fmt: skip


@pytest.mark.parametrize("name", FALLS)
def test_what_may_fall(name: str) -> None:
    build, falls = FALLS[name]
    cx = lm.Graph()
    build(cx.tensor((4, 6), name="x")).output("y")
    roots = lower(cx.graph()).roots
    assert oracle.may_fall(root.term for root in roots) == falls


def test_dtypes_have_tolerances() -> None:
    floats = [each for each in dtypes.ALL if each.is_float]
    assert set(oracle.TOLERANCE) == {dtype.name for dtype in floats}
