"""Programs by groups: right by the reference, and the same bits by both meanings of a kernel."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm
from luminal.base import dtypes
from luminal.base.costs import Shares
from luminal.base.dtypes import DType
from luminal.base.errors import CompileError, VerifyError
from luminal.expand.builder import Builder
from luminal.expand.ir import Barrier, Statement
from luminal.selection import scans
from tests.backends import op_table
from tests.backends.groups.both_meanings import DRIVER, compiled, groups_since
from tests.backends.on_device import check_case
from tests.close import close_each
from tests.fuzz.graphs import random_case
from tests.long_share import long_but, mostly_long

GROUPS = {group.__name__: group for group in op_table.GROUPS}


def check_table(dtype: DType, group: str) -> None:
    before = len(DRIVER.lanes)
    op_table.check(compiled, dtype, (GROUPS[group],))
    assert max(groups_since(before)) > 1


@pytest.mark.parametrize("group", mostly_long(["leaves", "memory"], 1))
def test_a_sample_of_the_op_table(group: str) -> None:
    check_table(dtypes.float32, group)


@pytest.mark.long
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_the_op_table(dtype: DType, group: str) -> None:
    if not op_table.takes(GROUPS[group], dtype):
        pytest.skip(f"nothing is reduced in {dtype}")
    check_table(dtype, group)


def check_seeds(seeds: range) -> None:
    for seed in seeds:
        case = random_case(seed)
        check_case(compiled(case.graph), case)


def test_random_graphs() -> None:
    check_seeds(range(2))


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(10))
def test_many_random_graphs(chunk: int) -> None:
    check_seeds(range(100 + 30 * chunk, 130 + 30 * chunk))


# --- shapes ---------------------------------------------------------------------------------------


def launched(cx: lm.Graph, **inputs: np.ndarray) -> tuple[dict[str, np.ndarray], list[int]]:
    """The outputs, and the lanes of the launches."""
    before = len(DRIVER.lanes)
    found = compiled(cx.graph())(inputs)
    return dict(found), groups_since(before)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 64), (64, 7), (1, 300), (300, 1), (5, 0)])
def test_sums_of_rows_and_columns_of_any_shape(shape: tuple[int, int]) -> None:
    cx = lm.Graph()
    x = cx.tensor(shape, name="x")
    x.sum(1).output("rows")
    x.sum(0).output("columns")
    if shape[1]:
        x.max(1)[0].output("greatest")
    (x * 2 + 1).output("map")
    given = np.random.default_rng(3).integers(-8, 8, shape).astype(np.float32)
    found, _ = launched(cx, x=given)
    np.testing.assert_array_equal(found["rows"], given.sum(1))
    np.testing.assert_array_equal(found["columns"], given.sum(0))
    np.testing.assert_array_equal(found["map"], given * 2 + 1)
    if shape[1]:
        np.testing.assert_array_equal(found["greatest"], given.max(1))


@pytest.mark.parametrize(
    "shape", mostly_long([(3, 5), (0, 4), (2, 8), (1, 1), (3, 33), (33, 3), (1, 130)], 3)
)
def test_scans_and_sorts_of_any_shape(shape: tuple[int, int]) -> None:
    cx = lm.Graph()
    x = cx.tensor(shape, name="x")
    for axis in (0, 1):
        x.cumsum(axis).output(f"sums{axis}")
        for name, result in zip(("values", "order"), x.sort(axis), strict=True):
            result.output(f"{name}{axis}")
    given = np.random.default_rng(4).integers(-4, 4, shape).astype(np.float32)
    given.flat[::7] = np.nan
    found, _ = launched(cx, x=given)
    for axis in (0, 1):
        np.testing.assert_array_equal(found[f"sums{axis}"], given.cumsum(axis))
        np.testing.assert_array_equal(found[f"values{axis}"], np.sort(given, axis))
        order = np.argsort(given, axis, kind="stable")
        np.testing.assert_array_equal(found[f"order{axis}"], order)


@pytest.mark.parametrize("dtype", long_but([d.short for d in dtypes.ALL], ("f32", "u64", "bool")))
def test_sorts_of_any_dtype_are_stable(dtype: str) -> None:
    cx = lm.Graph()
    rows, n = cx.dim("rows", 0, 64), cx.dim("n", 0, 1000)
    x = cx.tensor((rows, n), name="x", dtype=dtype)
    for name, result in zip(("values", "order"), x.sort(1), strict=True):
        result.output(name)
    exe, rng = compiled(cx.graph()), np.random.default_rng(5)
    for shape in ((2, 1), (1, 37), (2, 16), (0, 5), (2, 0)):
        given = rng.integers(0, 9, shape).astype(dtypes.dtype_of(dtype).numpy)
        if dtypes.dtype_of(dtype).is_float:
            for k, special in enumerate((np.nan, -0.0, np.inf, -np.inf)):
                given.flat[k::7] = special
        found = exe({"x": given})
        # NumPy knows bfloat16 as a number only
        order = np.argsort(given.astype(np.float64), 1, kind="stable")
        np.testing.assert_array_equal(found["order"], order)
        expected = np.take_along_axis(given, order, 1)
        assert np.ascontiguousarray(found["values"]).tobytes() == expected.tobytes()


@pytest.mark.parametrize("shape", mostly_long([(1, 1), (33, 3), (3, 33), (1, 130)], 2))
def test_scans_in_blocks(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shares, "leave_idle", lambda *_: True)
    monkeypatch.setattr(scans, "chunk_size", lambda length, *_: 9 if length > 9 else None)
    cx = lm.Graph()
    x = cx.tensor(shape, name="x")
    for axis in (0, 1):
        x.cumsum(axis).output(f"sums{axis}")
        x.cummax(axis)[0].output(f"greatest{axis}")
        x.cumprod(axis).output(f"products{axis}")
    given = np.random.default_rng(5).choice([-2.0, -1.0, 1.0, 0.5], shape).astype(np.float32)
    found, _ = launched(cx, x=given)
    for axis in (0, 1):
        np.testing.assert_array_equal(found[f"sums{axis}"], given.cumsum(axis))
        np.testing.assert_array_equal(found[f"products{axis}"], given.cumprod(axis))
        greatest = np.maximum.accumulate(given, axis)
        np.testing.assert_array_equal(found[f"greatest{axis}"], greatest)


def test_scans_in_blocks_of_any_dim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shares, "leave_idle", lambda *_: True)
    monkeypatch.setattr(scans, "chunk_size", lambda *_: 9)
    cx = lm.Graph()
    x = cx.tensor((3, cx.dim("n", 0, 200)), name="x")
    x.cumsum(1).output("sums")
    exe = compiled(cx.graph())
    for n in (20, 0, 1, 9, 10, 65):
        given = np.random.default_rng(n).integers(-4, 4, (3, n)).astype(np.float32)
        np.testing.assert_array_equal(exe({"x": given})["sums"], given.cumsum(1))


def test_dims_are_lanes_too() -> None:
    cx = lm.Graph()
    x = cx.tensor(("a", "b"), name="x")
    x.sum(1).output("rows")
    exe = compiled(cx.graph())
    for shape in ((2, 3), (9, 40), (1, 1), (1, 70), (33, 2)):
        given = np.ones(shape, np.float32)
        np.testing.assert_array_equal(exe({"x": given})["rows"], given.sum(1))


def normed() -> tuple[lm.Graph, np.ndarray]:
    """A kernel that keeps a row while its lanes learn of its sum."""
    cx = lm.Graph()
    x = cx.tensor((3, 40), name="x")
    y = (x * 3).exp()
    y = (y / (y + 1)).exp()  # dearer than to read it again
    (y / y.sum(1, keepdim=True) + y.mean(1, keepdim=True)).output("y")
    return cx, np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)


def test_what_lanes_share_lies_in_shared_memory_behind_barriers() -> None:
    cx, given = normed()
    found, lanes = launched(cx, x=given)
    y = np.exp(given * 3)
    y = np.exp(y / (y + 1))
    expected = y / y.sum(1, keepdims=True) + y.mean(1, keepdims=True)
    close_each(found["y"], expected, ulp=8)
    assert max(lanes) == 8
    shared = [text for text in DRIVER.expanded if "  shared " in text and "barrier group" in text]
    assert shared


def test_a_missing_barrier_is_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    emit = Builder.emit

    def all_but_the_third(self: Builder, statement: Statement) -> None:
        barriers.append(isinstance(statement, Barrier))
        if not (barriers[-1] and sum(barriers) == 3):
            emit(self, statement)

    barriers: list[bool] = []
    monkeypatch.setattr(Builder, "emit", all_but_the_third)
    monkeypatch.setattr(DRIVER, "expanded", {})
    cx, given = normed()
    with pytest.raises(VerifyError, match=r"lane \d+ (reads|writes) folded_f32.*, which lane \d+"):
        launched(cx, x=given)


def test_groups_beyond_the_devices_largest_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(DRIVER), "most_lanes", 4)
    cx, given = normed()
    message = "groups: a kernel by groups of 8 lanes; the device has at most 4 in one"
    with pytest.raises(CompileError, match=message):
        launched(cx, x=given)
