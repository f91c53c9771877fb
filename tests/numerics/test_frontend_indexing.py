"""gather, take, scatter, embedding, one_hot against PyTorch and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from luminal.base.errors import DTypeError, ShapeError
from luminal.frontend.graph import Recorder
from tests.close import close
from tests.numerics.recording import results, run

pytestmark = pytest.mark.usefixtures("every_backend")

rng = np.random.default_rng(0)
X = rng.normal(0, 1, (4, 5, 6)).astype(np.float32)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather_and_scatter_like_torch(dim: int) -> None:
    index = rng.integers(0, X.shape[dim], (3, 4, 2))
    t, ti = torch.from_numpy(X), torch.from_numpy(index)
    close(run(lambda x, i: x.gather(dim, i), X, index), t.gather(dim, ti).numpy())
    source = rng.normal(0, 1, (4, 4, 3)).astype(np.float32)
    added = t.scatter_add(dim, ti, torch.from_numpy(source)).numpy()
    close(run(lambda x, i, s: x.scatter_add(dim, i, s), X, index, source), added)
    unique = np.argsort(rng.normal(size=X.shape), dim)[:3, :4, :2]  # no position twice
    expected = t.scatter(dim, torch.from_numpy(unique), torch.from_numpy(source)).numpy()
    close(run(lambda x, i, s: x.scatter(dim, i, s), X, unique, source), expected)
    expected = t.scatter(dim, ti, 2.5).numpy()
    close(run(lambda x, i: x.scatter(dim, i, 2.5), X, index), expected)


def test_the_last_of_equal_positions_wins() -> None:
    zeros, index = np.zeros(4, np.float32), np.array([1, -1, 1])
    found = run(lambda x, i, s: x.scatter(0, i, s), zeros, index, np.array([5, 6, 7], np.float32))
    close(found, np.array([0, 7, 0, 6], np.float32))


def test_tuples_and_ranges_are_lists_of_positions() -> None:
    t = torch.from_numpy(X)
    keys: list[tuple[object, ...]] = [
        ((0, 2),), (slice(None), (1, -1, 1)), (0, (1, 2)), ((0, 1), slice(None), (2, 5)),
        (..., (0, 0, 3)), (((0, 1), (2, 3)),), (slice(None), ()), ((True, False, True, True),),
        (range(1, 3), 0), (slice(None), range(0)), (None, (1,)),
    ]  # fmt: skip
    found = run(lambda x: [x[key] for key in keys], X)
    for key, mine in zip(keys, found, strict=True):
        lists = tuple(list(k) if isinstance(k, range) else k for k in key)
        close(mine, t[lists].numpy())
    put = run(lambda x: x.index_put(((0, 1), (2, 3)), 7.0), X[0])
    assert (put == 7).sum() == 2
    assert put[0, 2] == put[1, 3] == 7


def test_take() -> None:
    index = np.array([[0, -1], [3, 2]])
    for dim in (None, 0, 1, -1):
        close(run(lambda x, i, d=dim: x.take(i, d), X, index), np.take(X, index, dim))
        close(run(lambda x, d=dim: x.take(index, d), X), np.take(X, index, dim))
    close(run(lambda x: x.take(2, 1), X), np.take(X, 2, 1))


def test_embedding_and_one_hot() -> None:
    table, ids = X[0], np.array([[1, 4], [0, 0]], np.int32)
    close(run(lambda i, w: i.embedding(w), ids, table), table[ids])
    expected = torch.nn.functional.one_hot(torch.from_numpy(ids).long(), 5).numpy()
    close(run(lambda i: i.one_hot(5), ids), expected)
    (found,) = run(lambda i: i.one_hot(300), np.array([40], np.int8))  # 296 is 40 in a byte
    assert found.nonzero()[0].tolist() == [40]
    assert run(lambda i: i.one_hot(5, "float32"), ids).dtype == np.float32


def test_slice_scatter() -> None:
    part = np.full((4, 2, 6), 9, np.float32)
    expected = X.copy()
    expected[:, 2:4] = 9
    close(run(lambda x, s: x.slice_scatter(s, 1, 2), X, part), expected)
    expected = X.copy()
    expected[:, -2:] = 9
    close(run(lambda x, s: x.slice_scatter(s, 1, -2), X, part), expected)


def test_slice_scatter_at_a_dim_is_a_region_write() -> None:
    cx = Recorder()
    s, past = cx.dim("s", 1, 5), cx.dim("past", 0, 4)
    cache = cx.state((2, 5, 3), name="cache")
    new = cx.tensor((2, s, 3), name="new")
    written = cache.slice_scatter(new, 1, past)
    assert written.value.node.op.name == "Scatter"
    assert [str(e) for e in written.value.node.attrs.map] == ["i0", "i1 + past", "i2"]
    assert [str(r) for r in cx.requirements] == ["past + s <= 5"]
    cx.assign(cache.state, written)
    cx.output(written)
    array = np.ones((2, 2, 3), np.float32)
    (found,) = results(cx, [written], {"new": array}, {"s": 2, "past": 1})
    assert found[:, 1:3].min() == 1
    assert found.sum() == 12
    close(cache.state.numpy(), found)


def test_indexing_errors() -> None:
    i = np.zeros((3, 4, 2), np.int64)
    cases = [
        (lambda x, i: x.gather(0, i[0]), ShapeError, "gather: the indices .* differ in rank"),
        (lambda x, i: x.gather(0, x), DTypeError, "does not hold integers"),
        (lambda x, i: x.take([6], 2), ShapeError, "index: 6 is out of range for an extent of 6"),
        (
            lambda x, i: x.slice_scatter(x[:, :, :2], 1),
            ShapeError,
            "slice_scatter: .* does not fit",
        ),
        (lambda x, i: i.embedding(x), ShapeError, r"embedding: the weight is x0: f32\[4, 5, 6\]"),
        (lambda x, i: i.scatter(0, i, 0.5), DTypeError, "scatter: 0.5 is no int64"),
    ]
    for fn, error, text in cases:
        with pytest.raises(error, match=text):
            run(fn, X, i)
