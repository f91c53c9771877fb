"""Gather, scatter, search, sort and embedding against PyTorch and NumPy, many cases in a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.base.errors import DTypeError, ShapeError
from luminal.frontend.graph import Recorder
from tests.numerics.index_cases import Case, check
from tests.numerics.recording import run

pytestmark = pytest.mark.usefixtures("every_backend")

rng = np.random.default_rng(0)
X = rng.normal(0, 1, (4, 5, 6)).astype(np.float32)
S = rng.integers(-9, 9, (3, 7, 6)).astype(np.float32)
I = rng.integers(0, 4, (3, 5, 6))
ROW = np.array([2, 0, 2])
T, TS, TI, TROW = map(torch.from_numpy, (X, S, I, ROW))
NAN = np.array([[2, np.nan, -np.inf, 2, -0.0, 0.0, np.inf, np.nan, -1]], np.float32)


# --- reading and writing --------------------------------------------------------------------------


def test_reading() -> None:
    mask = X[:, :, 0] > 0
    key = rng.integers(-5, 5, (4, 1, 6))
    cases: dict[str, Case] = {
        "gather": (lambda x, i, r: x.gather(0, i), T.gather(0, TI)),
        "gather-int32": (lambda x, i, r: x.gather(0, i.int()), T.gather(0, TI)),
        "take": (lambda x, i, r: x.take(r, axis=1), np.take(X, ROW, 1)),
        "index_select": (lambda x, i, r: x.index_select(-1, r), T.index_select(-1, TROW)),
        "take_along_axis": (
            lambda x, i, r: lm.take_along_axis(x, key, 1),
            np.take_along_axis(X, key, 1),
        ),
        "take_along_dim": (
            lambda x, i, r: x.take_along_dim(i[:1, :1], 1),
            torch.take_along_dim(T, TI[:1, :1], 1),
        ),
        "flat": (
            lambda x, i, r: lm.take_along_axis(x, key[0, 0], None),
            np.take_along_axis(X, key[0, 0], None),
        ),
        "mask": (lambda x, i, r: x[mask], X[mask]),
        "mask and int": (lambda x, i, r: x[1:, mask[0]], X[1:, mask[0]]),
        "mask between": (lambda x, i, r: x[0, mask[1], None, 2], X[0, mask[1], None, 2]),
        "whole mask": (lambda x, i, r: x[X > 0], X[X > 0]),
        "empty mask": (lambda x, i, r: x[X > 99], X[X > 99]),
    }
    check(cases, X, I, ROW)


@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce_like_torch(include_self: bool) -> None:
    kinds = ("sum", "prod", "mean", "amax", "amin")
    integers = (S * 7).astype(np.int32)
    cases: dict[str, Case] = {}
    for kind in kinds:
        cases[kind] = (
            lambda x, s, i, n, k=kind: x.scatter_reduce(0, i, s, k, include_self),
            T.scatter_reduce(0, TI, TS[:, :5], kind, include_self=include_self),
        )
        whole = torch.arange(120, dtype=torch.int32).reshape(4, 5, 6)
        cases[f"{kind} of integers"] = (
            lambda x, s, i, n, k=kind: (
                x.graph.arange(120, dtype="int32")
                .reshape(4, 5, 6)
                .scatter_reduce(0, i, n, k, include_self)
            ),
            whole.scatter_reduce(
                0, TI, torch.from_numpy(integers)[:, :5], kind, include_self=include_self
            ),
        )
    check(cases, X, S, I, integers)


def test_scatter_reduce_with_nan_and_inf() -> None:
    x = np.array([1, 2, 3, np.nan], np.float32)
    src = np.array([np.nan, 5, np.inf, -np.inf, 0, np.inf, 7], np.float32)
    at = np.array([0, 0, 1, 1, 2, 2, 3])
    given = map(torch.from_numpy, (x, at, src))
    tx, ti, ts = given
    cases: dict[str, Case] = {
        kind: (
            lambda x, i, s, k=kind: x.scatter_reduce(0, i, s, k),
            tx.scatter_reduce(0, ti, ts, kind),
        )
        for kind in ("sum", "prod", "amax", "amin")
    }
    check(cases, x, at, src)


def test_writing_slices() -> None:
    part = S[:, :5, :6].transpose(1, 0, 2).copy()  # (5, 3, 6)
    wide = torch.from_numpy(part).transpose(0, 1)  # (3, 5, 6)
    mask = X > 0.5
    source = rng.normal(0, 1, 120).astype(np.float32)
    tmask, tsource = torch.from_numpy(mask), torch.from_numpy(source)
    unique = np.array([3, 0, 1])
    tu = torch.from_numpy(unique)
    cases: dict[str, Case] = {
        "index_add": (
            lambda x, p, r, v: x.index_add(0, r, p.transpose(0, 1), alpha=2),
            T.index_add(0, TROW, wide, alpha=2),
        ),
        "index_copy": (
            lambda x, p, r, v: x.index_copy(0, unique, p.transpose(0, 1)),
            T.index_copy(0, tu, wide),
        ),
        "index_fill": (lambda x, p, r, v: x.index_fill(1, r, -1.5), T.index_fill(1, TROW, -1.5)),
        "index_reduce": (
            lambda x, p, r, v: x.index_reduce(0, r, p.transpose(0, 1), "amax"),
            T.scatter_reduce(0, TROW[:, None, None].expand(wide.shape), wide, "amax"),
        ),
        "slice_scatter": (
            lambda x, p, r, v: x.slice_scatter(x[:, 1:3] * 0, 1, 0, 4, 2),
            T.slice_scatter(T[:, 1:3] * 0, 1, 0, 4, 2),
        ),
        "select_scatter": (
            lambda x, p, r, v: x.select_scatter(x[0] + 1, 0, -1),
            T.select_scatter(T[0] + 1, 0, -1),
        ),
        "diagonal_scatter": (
            lambda x, p, r, v: x.diagonal_scatter(x[:, 0, :5], 1, 1, 2),
            T.diagonal_scatter(T[:, 0, :5], 1, 1, 2),
        ),
        "diagonal below": (
            lambda x, p, r, v: x.diagonal_scatter(x[:, 0, :3], -2, 1, 2),
            T.diagonal_scatter(T[:, 0, :3], -2, 1, 2),
        ),
        "masked_scatter": (
            lambda x, p, r, v: x.masked_scatter(x > 0.5, v),
            T.masked_scatter(tmask, tsource),
        ),
        "put": (
            lambda x, p, r, v: x.put(r, v[:3], accumulate=True),
            T.put(TROW, tsource[:3], accumulate=True),
        ),
        "index_put": (lambda x, p, r, v: x.index_put((r, None, r + 1), v[:5]), None),
        "accumulate": (
            lambda x, p, r, v: x.index_put((r, r), 1.5, accumulate=True),
            T.index_put((TROW, TROW), torch.tensor(1.5), accumulate=True),
        ),
        "by mask": (
            lambda x, p, r, v: x.index_put((x > 0.5,), 9.0),
            T.index_put((tmask,), torch.tensor(9.0)),
        ),
        "by constant mask": (
            lambda x, p, r, v: x.index_put((mask,), v[: mask.sum()]),
            T.index_put((tmask,), tsource[: mask.sum()]),
        ),
        "multiply": (
            lambda x, p, r, v: x.scatter(0, r[:, None, None], 3.0, reduce="multiply"),
            T.scatter(0, TROW[:, None, None], 3.0, reduce="multiply"),
        ),
    }
    expected = X.copy()
    expected[ROW, :, ROW + 1] = source[:5]
    cases["index_put"] = (cases["index_put"][0], expected)
    check(cases, X, part, ROW, source)


def test_indices_above_2_to_24_are_exact() -> None:
    n = 2**24 + 5
    at = np.array([n - 1, 2**24 + 1, 2**24])
    found = run(lambda i: i.graph.arange(n).take(i), at)
    np.testing.assert_array_equal(found, at)


# --- embedding ------------------------------------------------------------------------------------


def test_embedding_bag_like_torch() -> None:
    table = rng.normal(0, 1, (9, 4)).astype(np.float32)
    ids, offsets = np.array([1, 3, 3, 8, 0, 2, 1]), np.array([0, 2, 2, 6])
    rows = ids[:6].reshape(2, 3)
    weights = rng.normal(0, 1, 7).astype(np.float32)
    bag = torch.nn.functional.embedding_bag
    tt, ti, to, tr, tw = map(torch.from_numpy, (table, ids, offsets, rows, weights))
    cases: dict[str, Case] = {}
    for mode in ("sum", "mean", "max"):
        cases |= {
            mode: (
                lambda t, i, o, r, w, m=mode: lm.embedding_bag(i, t, o, m),
                bag(ti, tt, to, mode=mode),
            ),
            f"{mode} rows": (
                lambda t, i, o, r, w, m=mode: lm.embedding_bag(r, t, mode=m),
                bag(tr, tt, mode=mode),
            ),
            f"{mode} padding": (
                lambda t, i, o, r, w, m=mode: lm.embedding_bag(i, t, o, m, padding_idx=3),
                bag(ti, tt, to, mode=mode, padding_idx=3),
            ),
            f"{mode} last": (
                lambda t, i, o, r, w, m=mode: lm.embedding_bag(
                    i, t, o, m, include_last_offset=True
                ),
                bag(ti, tt, torch.tensor([0, 2, 2, 7]), mode=mode, include_last_offset=True),
            ),
        }
    cases["weights"] = (
        lambda t, i, o, r, w: lm.embedding_bag(i, t, o, "sum", w),
        bag(ti, tt, to, mode="sum", per_sample_weights=tw),
    )
    cases["max_norm"] = (
        lambda t, i, o, r, w: r.embedding(t, max_norm=1.5),
        torch.nn.functional.embedding(tr, tt.clone(), max_norm=1.5),
    )
    last = cases.pop("sum last"), cases.pop("mean last"), cases.pop("max last")
    check(cases, table, ids, offsets, rows, weights)
    named = dict(zip(("sum", "mean", "max"), last, strict=True))
    check(named, table, ids, np.array([0, 2, 2, 7]), rows, weights)


def test_bags_end_at_the_last_offset() -> None:
    table, ids = rng.normal(0, 1, (9, 4)).astype(np.float32), np.array([1, 3, 8, 0, 2])
    ends = np.array([0, 2, 4])  # the last id is in no bag
    wanted = torch.from_numpy(np.stack([table[[1, 3]].sum(0), table[[8, 0]].sum(0)]))
    bags: Case = (
        lambda t, i, o: lm.embedding_bag(i, t, o, "sum", include_last_offset=True),
        wanted,
    )
    check({"sum": bags}, table, ids, ends)


# --- sorting and searching ------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_sort_on_any_axis(dim: int) -> None:
    x = rng.integers(-4, 4, (4, 5, 6)).astype(np.int16)
    t = torch.from_numpy(x)
    cases: dict[str, Case] = {
        "sort": (lambda x: x.sort(dim), t.sort(dim=dim, stable=True)),
        "descending": (
            lambda x: x.sort(dim, descending=True),
            t.sort(dim=dim, descending=True, stable=True),
        ),
        "argsort": (lambda x: x.argsort(dim), np.argsort(x, dim, kind="stable")),
        "topk": (lambda x: x.topk(3, dim).values, t.topk(3, dim).values),
        "least": (
            lambda x: x.topk(2, dim, largest=False).values,
            t.topk(2, dim, largest=False).values,
        ),
        "kthvalue": (lambda x: x.kthvalue(2, dim).values, t.kthvalue(2, dim).values),
        "kept": (
            lambda x: x.kthvalue(4, dim, keepdim=True).values,
            t.kthvalue(4, dim, keepdim=True).values,
        ),
        "mode": (lambda x: x.mode(dim).values, t.mode(dim).values),
        "msort": (lambda x: x.msort(), t.msort()),
    }
    check(cases, x)


def test_sort_of_nan_inf_and_bools() -> None:
    order = np.argsort(NAN, 1, kind="stable")
    cases: dict[str, Case] = {
        "ascending": (lambda x: x.sort(), [np.take_along_axis(NAN, order, 1), order]),
        "descending": (
            lambda x: x.sort(descending=True),
            torch.from_numpy(NAN).sort(stable=True, descending=True),
        ),
        "topk": (lambda x: x.topk(3)[1], np.array([[1, 7, 6]])),
        "bools": (lambda x: (x > 0).sort(), torch.from_numpy(NAN > 0).sort(stable=True)),
        "unsigned": (
            lambda x: x.graph.constant(np.array([2**64 - 1, 0, 2**63], np.uint64)).sort(),
            [np.array([0, 2**63, 2**64 - 1], np.uint64), np.array([1, 2, 0])],
        ),
    }
    check(cases, NAN)


def test_long_rows_and_their_first_k() -> None:
    x = rng.integers(0, 99, (3, 2000)).astype(np.float32)
    x[1, 5], x[2, 7:9] = np.nan, -np.inf
    largest = np.argsort(-x, 1, kind="stable")
    largest[1] = np.concatenate([[5], largest[1][largest[1] != 5]])
    least = np.argsort(x, 1, kind="stable")
    cases: dict[str, Case] = {
        "topk": (
            lambda x: x.topk(20),
            [np.take_along_axis(x, largest, 1)[:, :20], largest[:, :20]],
        ),
        "least": (
            lambda x: x.topk(20, largest=False),
            [np.take_along_axis(x, least, 1)[:, :20], least[:, :20]],
        ),
        "columns": (lambda x: x.transpose(0, 1).topk(20, 0)[1], largest[:, :20].T),
        "integers": (lambda x: x[0].int().topk(5)[1], largest[0, :5]),
    }
    check(cases, x)


def test_searchsorted() -> None:
    edges = np.array([-2, -1, 0, 0, 0.5, np.inf], np.float32)
    values = np.array([[-3, -2, 0, 0.25], [0.5, 8, np.inf, np.nan]], np.float32)
    rows = np.sort(rng.normal(0, 1, (2, 9)).astype(np.float32))
    te, tv, tr = map(torch.from_numpy, (edges, values, rows))
    mixed = np.array([3, 1, 2, 0])
    cases: dict[str, Case] = {
        "left": (lambda e, v, r: lm.searchsorted(e, v), np.searchsorted(edges, values)),
        "right": (
            lambda e, v, r: lm.searchsorted(e, v, side="right"),
            np.searchsorted(edges, values, "right"),
        ),
        "rows": (lambda e, v, r: lm.searchsorted(r, v), torch.searchsorted(tr, tv)),
        "number": (lambda e, v, r: lm.searchsorted(e, 0.0, right=True), np.int64(4)),
        "int32": (
            lambda e, v, r: lm.searchsorted(e, v, out_int32=True),
            np.searchsorted(edges, values).astype(np.int32),
        ),
        "bucketize": (
            lambda e, v, r: v.bucketize(e, right=True),
            torch.bucketize(tv, te, right=True),
        ),
        "ints": (
            lambda e, v, r: lm.searchsorted(v.graph.arange(5), v[0, :3]),
            np.searchsorted(np.arange(5), values[0, :3]),
        ),
        "sorter": (
            lambda e, v, r: lm.searchsorted(
                e[:4].take(mixed), v[0], sorter=v.graph.constant(np.argsort(mixed))
            ),
            np.searchsorted(edges[:4], values[0]),
        ),
        "one": (lambda e, v, r: lm.searchsorted(e[:1], v), np.searchsorted(edges[:1], values)),
        "none": (lambda e, v, r: lm.searchsorted(e[:0], v), np.zeros((2, 4), np.int64)),
    }
    check(cases, edges, values, rows)


def test_nonzero_where_the_shape_is_known() -> None:
    x = np.array([[0, 3, 0], [4, 0, -1]], np.float32)
    places = np.argwhere(x)
    cases: dict[str, Case] = {
        "static": (lambda x: x.nonzero_static(3), places),
        "fewer": (lambda x: x.nonzero_static(2), places[:2]),
        "more": (lambda x: x.nonzero_static(5, -7), np.append(places, np.full((2, 2), -7), 0)),
        "constant": (
            lambda x: x.graph.constant([[True, False, True]]).nonzero(),
            np.array([[0, 0], [0, 2]]),
        ),
        "unravel": (
            lambda x: lm.unravel_index(x.graph.arange(12), (2, 2, 3)),
            np.unravel_index(np.arange(12), (2, 2, 3)),
        ),
    }
    check(cases, x)


def test_different_elements_are_pytorchs() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (5, 3))
    for x in (rng.integers(-3, 3, (3, 4)), rows, rows.astype(np.float32), np.array(7), rows[:0],
              np.array([np.nan, 1, 1, np.nan, np.inf]), rows > 0):  # fmt: skip
        for dim in (None, 0, -1)[: 1 + 2 * (x.ndim > 1 and x.size > 0)]:
            for name in ("unique", "unique_consecutive"):
                every = {"return_inverse": True, "return_counts": True, "dim": dim}
                wanted = getattr(torch, name)(torch.tensor(x), **every)
                for mine, other in zip(
                    getattr(lm, name)(lm.tensor(x), **every), wanted, strict=True
                ):
                    assert mine.numpy().dtype == other.numpy().dtype
                    np.testing.assert_array_equal(mine.numpy(), other.numpy())
    ours: Any = lm.tensor(rows)
    assert ours.unique().numpy().tolist() == [0, 1]
    assert ours.unique_consecutive(return_counts=True)[1].sum().numpy() == 15
    cx = lm.Graph()
    assert cx.constant([2, 1, 2]).unique().shape == (2,)


def test_shapes_that_data_would_decide_and_other_errors() -> None:
    cases: list[tuple[Callable[[Any, Any], Any], type[Exception], str]] = [
        (
            lambda x, i: x.nonzero(),
            ShapeError,
            "nonzero: .* fixed before a run; use nonzero_static",
        ),
        (lambda x, i: x.unique(), ShapeError, "unique: the elements of x0"),
        (lambda x, i: x.masked_select(x > 0), ShapeError, "masked_select: .* use where"),
        (lambda x, i: x[x > 0], ShapeError, "the mask bool.* use lm.where for choices"),
        (lambda x, i: x[np.ones(3, bool)], ShapeError, "a mask has 3 elements along dim 0"),
        (lambda x, i: i.one_hot(), ShapeError, "one_hot: .* say how many classes"),
        (lambda x, i: x.topk(7), ShapeError, "topk: k=7, but dim 2"),
        (lambda x, i: x.kthvalue(0), ShapeError, "kthvalue: k=0, .* elements 1..6"),
        (lambda x, i: x.scatter_reduce(0, i, x, "max"), ShapeError, "'max' is not one of sum"),
        (lambda x, i: x.scatter(0, i), ShapeError, "neither src nor value"),
        (lambda x, i: x.index_add(0, [0, 1], x), ShapeError, r"it takes the shape \(2, 5, 6\)"),
        (lambda x, i: x.index_fill(0, i, 0), ShapeError, "index_fill: the index x1.* is not 1-d"),
        (lambda x, i: x.index_copy(0, [9], x[:1]), ShapeError, "9 is out of range"),
        (lambda x, i: x[0].diagonal_scatter(x[0, 0], 1), ShapeError, "is not a diagonal of"),
        (lambda x, i: lm.searchsorted(x, x[0]), ShapeError, "differ in leading dims"),
        (lambda x, i: x.take_along_axis(i[0], 0), ShapeError, "differ in rank; use take"),
        (lambda x, i: x.repeat_interleave(i[0, 0], 2), ShapeError, "give output_size"),
        (
            lambda x, i: i.scatter_add(0, i, 0.5),
            DTypeError,
            "scatter_add: 0.5 is no int64",
        ),
    ]
    for fn, error, text in cases:
        with pytest.raises(error, match=text):
            run(fn, X, I)


def test_assignment_says_what_to_do() -> None:
    with pytest.raises(TypeError, match="does not change; use index_put"):
        Recorder().zeros((3,))[0] = 1  # type: ignore[index]
