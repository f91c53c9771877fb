"""Reductions, softmax, norms, sorting and running sums against NumPy and PyTorch."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import luminal as lm
from luminal.base.errors import ShapeError
from luminal.hlir.printer import to_text
from tests.close import close
from tests.numerics.recording import run

pytestmark = pytest.mark.usefixtures("every_backend")

rng = np.random.default_rng(0)
X = rng.normal(0, 2, (3, 5, 4)).astype(np.float32)
I8 = rng.integers(-128, 128, (3, 5, 4)).astype(np.int8)
BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("dim", [None, 0, -1, 1, (0, 2), (-1, 1), ()])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "prod", "var"])
def test_reductions(name: str, dim: Any, keep: bool) -> None:
    if dim == () and name == "var":
        return
    extra = {"correction": 0} if name == "var" else {}
    found = run(lambda x: getattr(x, name)(dim=dim, keepdim=keep, **extra), X)
    close(found, getattr(np, name)(X.astype(np.float64), axis=dim, keepdims=keep), ulp=8)
    assert found.dtype == np.float32


def test_both_spellings_of_dim() -> None:
    close(run(lambda x: x.sum(axis=1, keepdims=True), X), X.sum(1, keepdims=True))
    close(run(lambda x: x.softmax(axis=0), X), torch.softmax(torch.from_numpy(X), 0).numpy())
    with pytest.raises(ShapeError, match="sum: give dim or axis, not both"):
        run(lambda x: x.sum(dim=0, axis=1), X)


def test_integers_and_bools() -> None:
    close(run(lambda x: x.sum(1), I8), I8.sum(1))
    close(run(lambda x: x.sum(), I8 > 0), (I8 > 0).sum())
    close(run(lambda x: x.sum(0), I8.view(np.uint8)), I8.view(np.uint8).sum(0))
    close(run(lambda x: x.mean(0), I8), I8.mean(0).astype(np.float32))
    close(run(lambda x: x.prod(0), I8), I8.astype(np.int64).prod(0))
    close(run(lambda x: x.amin(0), I8), I8.min(0))
    close(run(lambda x: x.amin(0), I8.view(np.uint8)), I8.view(np.uint8).min(0))
    close(run(lambda x: (x.any(1), x.all(1))[0], I8 > 100), (I8 > 100).any(1))
    close(run(lambda x: x.all((0, 1)), I8 < 127), (I8 < 127).all((0, 1)))
    close(run(lambda x: x.amax(0), I8 > 99), (I8 > 99).max(0))


def test_sum_of_16_bit_floats_is_formed_in_float32() -> None:
    x = X.astype(BF16)
    np.testing.assert_array_equal(
        run(lambda t: t.sum(1), x), x.astype(np.float32).sum(1).astype(BF16)
    )
    assert run(lambda t: t.sum(1, dtype="float32"), x).dtype == np.float32


def test_reductions_of_nothing() -> None:
    empty = np.zeros((2, 0), np.float32)
    close(run(lambda x: x.sum(1), empty), np.zeros(2, np.float32))
    close(run(lambda x: x.prod(1), empty), np.ones(2, np.float32))
    close(run(lambda x: x.mean(1), empty), np.full(2, np.nan, np.float32))
    close(run(lambda x: x.any(1), empty), np.zeros(2, bool))
    close(run(lambda x: x.all(1), empty), np.ones(2, bool))
    close(run(lambda x: x.sum(0), empty), np.zeros(0, np.float32))
    with pytest.raises(ShapeError, match=r"max: dim 1 of x0: f32\[2, 0\] is empty"):
        run(lambda x: x.max(1), empty)
    close(run(lambda x: x.prod(0), empty, shapes=[("n", 0)], dims={"n": 2}), np.ones(0, "f4"))


def test_0d() -> None:
    x = np.float32(3)
    close(run(lambda t: (t.sum() + t.mean() + t.amax()).exp(), x), np.exp(np.float32(9)))
    close(run(lambda t: t.argmax(), x), np.int64(0))


def test_var_and_std_correct_by_one() -> None:
    close(run(lambda x: x.var(1), X), X.var(1, ddof=1), ulp=8)
    close(run(lambda x: x.std((0, 1)), X), X.std((0, 1), ddof=1), ulp=8)
    one = np.ones((2, 1), np.float32)
    close(run(lambda x: x.var(1), one), np.full(2, np.nan, np.float32))


def test_symbolic_extents() -> None:
    shapes, dims = [("a", "b", 4)], {"a": 3, "b": 5}
    close(run(lambda x: x.mean((0, 1)), X, shapes=shapes, dims=dims), X.mean((0, 1)), ulp=8)
    close(run(lambda x: x.var(1), X, shapes=shapes, dims=dims), X.var(1, ddof=1), ulp=8)
    close(run(lambda x: x.argmax(1), X, shapes=shapes, dims=dims), X.argmax(1))
    close(run(lambda x: x.argmax(), X, shapes=shapes, dims=dims), X.argmax())
    close(run(lambda x: x.prod(0), X, shapes=shapes, dims=dims), X.prod(0))


# --- extremes -------------------------------------------------------------------------------------

TIES = np.array([[1, 3, 3, 0], [np.nan, 7, np.nan, 9], [-0.0, 0.0, -1, 0.0]], np.float32)


@pytest.mark.parametrize(("length", "dtype"), [(1 << 31, "i32"), ((1 << 31) + 1, "i64")])
def test_argmax_looks_for_positions_that_fit(length: int, dtype: str) -> None:
    graph = lm.Graph()
    found = graph.tensor((2, length), name="x").argmax(1)
    found.output("y")
    greatest = [line for line in to_text(graph.graph()).splitlines() if " = Max" in line]
    assert greatest[-1].count(dtype) == 1
    assert found.dtype is lm.int64


@pytest.mark.parametrize("keep", [False, True])
def test_argmax_takes_the_first_and_nan(keep: bool) -> None:
    close(run(lambda x: x.argmax(1, keepdim=keep), TIES), TIES.argmax(1, keepdims=keep))
    close(run(lambda x: x.argmin(1, keepdim=keep), TIES), TIES.argmin(1, keepdims=keep))
    close(run(lambda x: x.argmax(keepdim=keep), TIES), TIES.argmax(keepdims=keep))
    close(run(lambda x: x.argmin(0), I8), I8.argmin(0))
    close(run(lambda x: x.argmax(2), I8 > 0), (I8 > 0).argmax(2))


def test_max_along_a_dim_gives_values_and_indices() -> None:
    values, indices = run(lambda x: x.max(1), X)
    close(values, X.max(1))
    close(indices, X.argmax(1))
    values, indices = run(lambda x: x.min(-1, keepdim=True), X)
    close(values, X.min(-1, keepdims=True))
    close(indices, X.argmin(-1, keepdims=True))
    close(run(lambda x: x.max(), X), X.max())
    close(run(lambda x: x.amax(1), TIES), np.array([3, np.nan, 0], np.float32))


# --- softmax and norms ----------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [-1, 0, 1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_softmax(name: str, dim: int) -> None:
    x = X * 50
    found = run(lambda t: getattr(t, name)(dim), x)
    close(found, getattr(torch, name)(torch.from_numpy(x), dim).numpy(), ulp=8)


def test_rows_of_infinities() -> None:
    inf = np.inf
    rows = np.array([[-inf, -inf], [-inf, 1], [inf, 1], [np.nan, 1]], np.float32)
    for name in ("softmax", "log_softmax", "logsumexp"):
        expected = getattr(torch, name)(torch.from_numpy(rows), 1).numpy()
        np.testing.assert_allclose(run(lambda t, n=name: getattr(t, n)(1), rows), expected)


def test_softmax_of_16_bit_floats_rounds_once() -> None:
    x = X.astype(BF16)
    expected = run(lambda t: t.softmax(-1), x.astype(np.float32)).astype(BF16)
    np.testing.assert_array_equal(run(lambda t: t.softmax(-1), x), expected)


@pytest.mark.parametrize("dims", [-1, (-2, -1)])
def test_norms(dims: Any) -> None:
    x, t = X + 100, torch.from_numpy(X + 100)
    shape = x.shape[-1:] if dims == -1 else x.shape[-2:]
    w, b = (rng.normal(0, 1, shape).astype(np.float32) for _ in range(2))
    tw, tb = torch.from_numpy(w), torch.from_numpy(b)
    layer = torch.nn.functional.layer_norm(t.double(), shape, tw.double(), tb.double())
    close(run(lambda x, w, b: x.layer_norm(dims, w, b), x, w, b), layer.float().numpy(), ulp=256)
    rms = torch.nn.functional.rms_norm(t, shape, tw, 1e-5).numpy()
    close(run(lambda x, w: x.rms_norm(dims, w, eps=1e-5), x, w), rms, ulp=8)


def test_batch_norm() -> None:
    mean, var, weight, bias = (rng.uniform(0.5, 2, 5).astype(np.float32) for _ in range(4))
    tensors = [torch.from_numpy(a) for a in (X, mean, var, weight, bias)]
    expected = torch.nn.functional.batch_norm(*tensors).numpy()
    found = run(lambda x, m, v, w, b: x.batch_norm(m, v, w, b), X, mean, var, weight, bias)
    close(found, expected, ulp=8)
    plain = torch.nn.functional.batch_norm(*tensors[:3]).numpy()
    close(run(lambda x, m, v: x.batch_norm(m, v), X, mean, var), plain, ulp=8)


# --- order ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, -1])
def test_sort_is_stable(descending: bool, dim: int) -> None:
    x = rng.integers(0, 4, (6, 7)).astype(np.float32)
    x[2, 3] = np.nan
    t = torch.sort(torch.from_numpy(x), stable=True, dim=dim, descending=descending)
    values, indices = run(lambda a: a.sort(dim, descending=descending), x)
    np.testing.assert_array_equal(values, t.values.numpy())
    close(indices, t.indices.numpy())
    close(run(lambda a: a.argsort(dim), x), np.argsort(x, dim, kind="stable"))


def test_topk() -> None:
    x = rng.permutation(24).reshape(4, 6).astype(np.float32)
    for largest in (True, False):
        t = torch.topk(torch.from_numpy(x), 3, 1, largest)
        values, indices = run(lambda a, g=largest: a.topk(3, 1, g), x)
        close(values, t.values.numpy())
        close(indices, t.indices.numpy())
    with pytest.raises(ShapeError, match="topk: k=9, but dim 1 of"):
        run(lambda a: a.topk(9), x)


def test_running_sums_and_products() -> None:
    close(run(lambda x: x.cumsum(1), X), np.cumsum(X.astype(np.float64), 1), ulp=8)
    close(run(lambda x: x.cumprod(0), X), np.cumprod(X, 0))
    close(run(lambda x: x.cumsum(-1), I8), np.cumsum(I8, -1))
    x = X.astype(BF16)
    wide = run(lambda t: t.cumsum(1), x.astype(np.float32)).astype(BF16)
    np.testing.assert_array_equal(run(lambda t: t.cumsum(1), x), wide)
