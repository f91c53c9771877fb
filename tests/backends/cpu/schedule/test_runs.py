"""Products with one of many matrices for every row, chosen by an integer: rows in runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal.compiler.compile import lower_to_program
from luminal.kernel import tile_interpreter
from luminal.kernel.tile_ir import Kernel, Load, Runs
from luminal.kernel.tile_verify import verify
from luminal.nn.moe import MoE
from tests.close import close
from tests.long_share import mostly_long
from tests.machines import vectors

Array = np.ndarray[Any, Any]
AVX2 = vectors(256, registers=16)


class Case(NamedTuple):
    rows: int
    matrices: int
    columns: int
    length: int
    most: int = 0  # of rows, where their number is a dim


CASES = {
    "whole_tiles": Case(64, 4, 64, 32),
    "one_run": Case(40, 1, 32, 16),
    "ragged": Case(53, 5, 37, 19),
    "runs_of_one": Case(48, 96, 33, 17),
    "long": Case(150, 3, 70, 130),
    "rows_of_a_dim": Case(61, 7, 48, 40, most=200),
    "few_of_many": Case(3, 7, 48, 40, most=200),
}


def graph_of(case: Case, dtype: Any = lm.float32, turned: bool = True) -> lm.Graph:
    """y[s] = x[s] @ w[chosen[s]].T, or without the transposition."""
    cx = lm.Graph()
    rows = cx.dim("rows", 1, case.most) if case.most else case.rows
    shape = (case.columns, case.length) if turned else (case.length, case.columns)
    x = cx.tensor((rows, case.length), name="x")
    w = cx.tensor((case.matrices, *shape), dtype, name="w").cast(lm.float32)
    index = cx.tensor((rows,), lm.int32, "chosen")
    moved = index + cx.tensor((), lm.int32, "shift")  # so that nobody checks its range
    chosen = w.take(moved, 0)
    (x.unsqueeze(1) @ (chosen.mT if turned else chosen)).squeeze(1).output("y")
    return cx


def arrays(case: Case, dtype: Any, turned: bool, order: str) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shape = (case.columns, case.length) if turned else (case.length, case.columns)
    chosen = rng.integers(-case.matrices, case.matrices, case.rows).astype(np.int32)
    if order == "sorted":
        chosen = np.sort(chosen)
    elif order == "out_of_range":
        chosen[::3] = 1 << 28  # far outside of memory
        chosen[1::7] = -case.matrices - 1
    return {
        "x": rng.standard_normal((case.rows, case.length)).astype(np.float32),
        "w": rng.standard_normal((case.matrices, *shape)).astype(dtype),
        "chosen": chosen - np.int32(2),
        "shift": np.array(2, np.int32),
    }


def expected(case: Case, given: dict[str, Array], turned: bool) -> Array:
    """In float64; an index out of range reads zeros."""
    w, chosen = given["w"].astype(np.float64), given["chosen"] + given["shift"]
    w = w.swapaxes(1, 2) if turned else w
    inside = (chosen >= -case.matrices) & (chosen < case.matrices)
    each = np.where(inside[:, None, None], w[np.where(inside, chosen, 0)], 0)
    return np.einsum("sk,skn->sn", given["x"].astype(np.float64), each)


def runs_in(kernels: Any) -> list[Runs]:
    return [s for kernel in kernels for s in kernel.statements() if isinstance(s, Runs)]


@pytest.mark.parametrize("order", ["sorted", "any", "out_of_range"])
@pytest.mark.parametrize("turned", mostly_long([True, False], 1), ids=["turned", "straight"])
@pytest.mark.parametrize("name", CASES)
def test_products_by_runs(name: str, turned: bool, order: str) -> None:
    case = CASES[name]
    given = arrays(case, np.float32, turned, order)
    found = graph_of(case, turned=turned).compile("cpu")(given)["y"]
    close(found, expected(case, given, turned), ulp=8)


def test_weights_of_sixteen_bits() -> None:
    case = CASES["ragged"]
    given = arrays(case, ml_dtypes.bfloat16, True, "sorted")
    found = graph_of(case, lm.bfloat16).compile("cpu")(given)["y"]
    close(found, expected(case, given, True))


def product_kernel(case: Case) -> Kernel:
    """The kernel that multiplies, for 8 lanes."""
    (kernel,) = (k for k in lower_to_program(graph_of(case).graph(), AVX2).kernels if runs_in([k]))
    return kernel


@pytest.mark.parametrize("order", mostly_long(["any", "sorted"], 1))
def test_the_interpreter_walks_the_same_runs(order: str) -> None:
    case = CASES["ragged"]
    kernel = product_kernel(case)
    verify(kernel)
    given = arrays(case, np.float32, True, order)
    chosen = (given["chosen"] + given["shift"]).astype(np.int64) % case.matrices
    y = np.full(case.rows * case.columns, np.nan, np.float32)
    rest = [chosen, np.ones(case.rows, bool), np.ones(case.rows, bool), given["w"], given["x"], y]
    buffers: dict[str, Array] = {}
    for buffer in kernel.buffers:
        place = next(
            k
            for k, a in enumerate(rest)
            if a.dtype == buffer.dtype.numpy and a.size == buffer.size.evaluate({})
        )
        buffers[buffer.name] = rest.pop(place).reshape(-1)
    tile_interpreter.run(kernel, buffers, {})
    wanted = expected(case, given, True)
    close(y.reshape(wanted.shape), wanted)


def test_a_run_ends_where_any_key_changes() -> None:
    """Two integers choose a matrix: either alone would join rows that belong apart."""
    rng = np.random.default_rng(1)
    cx = lm.Graph()
    x = cx.tensor((64, 32), name="x")
    w = cx.tensor((3, 4, 48, 32), name="w")
    first, second = (cx.tensor((64,), lm.int32, name) for name in ("first", "second"))
    chosen = w.flatten(0, 1).take(first * 4 + second, 0)
    (x.unsqueeze(1) @ chosen.mT).squeeze(1).output("y")
    given = {
        "x": rng.standard_normal((64, 32)).astype(np.float32),
        "w": rng.standard_normal((3, 4, 48, 32)).astype(np.float32),
        "first": np.sort(rng.integers(0, 3, 64)).astype(np.int32),
        "second": rng.integers(0, 2, 64).astype(np.int32),
    }
    each = given["w"][given["first"], given["second"]]
    wanted = np.einsum("sk,snk->sn", given["x"], each)
    close(cx.compile("cpu")(given)["y"], wanted)


def test_rows_that_choose_are_in_runs_and_few_rows_are_not() -> None:
    many = lower_to_program(graph_of(CASES["long"]).graph(), AVX2).kernels
    few = lower_to_program(graph_of(Case(4, 3, 64, 32)).graph(), AVX2).kernels
    assert len(runs_in(many)) == 1
    assert not runs_in(few)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
@pytest.mark.parametrize("step", [1, 2, -1])
def test_a_matrix_of_its_own_for_every_row(dtype: Any, step: int) -> None:
    """Rows that tell matrices by their own number, not by an integer that is read."""
    rng = np.random.default_rng(2)
    cx = lm.Graph()
    x, w = cx.tensor((24, 16), dtype, "x"), cx.tensor((24 * abs(step), 40, 16), dtype, "w")
    each = w.flip(0) if step < 0 else w[::step]
    each = each * cx.tensor((40, 16), dtype, "v")  # which all rows share
    (x.unsqueeze(1) @ each.mT).squeeze(1).output("y")
    given = {
        "x": rng.integers(-9, 9, (24, 16)).astype(dtype),
        "w": rng.integers(-9, 9, (24 * abs(step), 40, 16)).astype(dtype),
        "v": rng.integers(-9, 9, (40, 16)).astype(dtype),
    }
    wanted = np.einsum("sk,snk->sn", given["x"], given["w"][::step] * given["v"])
    np.testing.assert_array_equal(cx.compile("cpu")(given)["y"], wanted)


class Halves(lm.nn.Module):
    """y[s] = x[s] @ first half of w[chosen[s]].T * the same of the second half."""

    def __init__(self, w: Array) -> None:
        self.w = lm.Parameter(w)

    def forward(self, x: lm.Tensor, chosen: lm.Tensor) -> lm.Tensor:
        rows = x.unsqueeze(1)
        halves = self.read(self.w, x).chunk(2, 1)
        first, second = ((rows @ half.take(chosen, 0).mT).squeeze(1) for half in halves)
        return first * second


@pytest.mark.parametrize("columns", [64, 48, 40])  # two panels of two vectors; of one; in none
@pytest.mark.parametrize("order", ["sorted", "any", "out_of_range"])
def test_weights_that_integers_choose_lie_in_panels(columns: int, order: str) -> None:
    case = Case(97, 5, 2 * columns, 72)
    given = arrays(case, np.float32, True, order)
    cx = lm.Graph()
    chosen, shift = cx.tensor((97,), lm.int32, "chosen"), cx.tensor((), lm.int32, "shift")
    Halves(given["w"])(cx.tensor((97, 72), name="x"), chosen + shift).output("y")
    found = cx.compile("cpu")({name: given[name] for name in ("x", "chosen", "shift")})["y"]
    first, second = np.split(expected(case, given, True), 2, 1)
    close(found, first * second, ulp=8)
    (kernel,) = (k for k in lower_to_program(cx.graph(), AVX2).kernels if runs_in([k]))
    assert bool(kernel.scratch) == (columns == 40)


class Chosen(lm.nn.Module):
    """y[i, j] = sum of x[i, k] w[chosen[j], k]: integers choose the columns."""

    def __init__(self, w: Array) -> None:
        self.w = lm.Parameter(w)

    def forward(self, x: lm.Tensor, chosen: lm.Tensor) -> lm.Tensor:
        return x @ self.read(self.w, x).take(chosen, 0).mT


@pytest.mark.parametrize("columns", [2, 40])  # panels are sought elsewhere where columns are few
def test_columns_that_integers_choose(columns: int) -> None:
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(600, 64)).astype("f4"), rng.normal(size=(3, 64)).astype("f4")
    chosen = rng.integers(-600, 600, columns).astype(np.int32)
    cx = lm.Graph()
    Chosen(w)(cx.tensor((3, 64), name="x"), cx.tensor((columns,), lm.int32, "chosen")).output("y")
    found = cx.compile("cpu")({"x": x, "chosen": chosen})["y"]
    close(found, x @ w[chosen].T, ulp=8)


def moe_report(tokens: int) -> Any:
    """What a mixture of 64 experts of 4 a token launches."""
    lm.nn.init.manual_seed(0)
    cx = lm.Graph()
    MoE(64, 48, 64, 4)(cx.tensor((tokens, 64), name="x")).output("y")
    return cx.compile("cpu").report()


def test_one_token_reads_only_the_experts_chosen() -> None:
    report = moe_report(1)
    expert, router = 3 * 64 * 48 * 4, 64 * 64 * 4
    products = [k.bytes for k in report.kernels if "Contract" in k.label]
    assert 4 * expert + router <= sum(products) <= 4 * expert + router + 16 * 1024


def test_experts_of_many_tokens_are_never_copied() -> None:
    report = moe_report(512)
    experts = 64 * 3 * 64 * 48 * 4
    others = [k.bytes for k in report.kernels if "Contract" not in k.label]
    assert max(others) < experts / 2
    assert len(report.kernels) <= 18


@pytest.mark.parametrize("shared", [2, 4])
def test_lanes_lie_along_the_rows_that_integers_choose(shared: int) -> None:
    """A weighted sum of gathered rows: neighbours in other axes lie anywhere."""
    cx = lm.Graph()
    rows = cx.dim("rows", 1, 1024)
    x, place = cx.tensor((rows * shared, 64)), cx.tensor((rows * shared,), lm.int32)
    weights, more = cx.tensor((rows, shared)), cx.tensor((rows, 64))
    each = x.take(place, 0).unflatten(0, (rows, shared)) * weights.unsqueeze(-1)
    (each.sum(1) + more).output("y")
    for kernel in lower_to_program(cx.graph(), AVX2).kernels:
        vectors = {axis for axis, (_, lanes) in kernel.tile_shapes().items() if lanes > 1}
        loads = [s for s in kernel.statements() if isinstance(s, Load)]
        assert not any(vectors & set(tile.axes) for s in loads for _, tile in s.indices)


def test_an_arena_beyond_memory_says_whose_it_is() -> None:
    cx = lm.Graph()
    s = cx.dim("s", 1, 2**20)
    x = cx.tensor((s, 8), name="x")
    pairs = x[:, None] * x[None]
    (pairs.sort(0)[0].sum((0, 2)) + pairs.cumsum(1).amax((0, 2))).output("y")
    exe = lm.compile(cx)
    wanted = r"; the arena of a run takes [\d,.]+ TiB, most of it i64\[s, s, 8\] of '.+' in "
    with pytest.raises(MemoryError, match=wanted):
        exe({"x": np.ones((2**19, 8), np.float32)})
