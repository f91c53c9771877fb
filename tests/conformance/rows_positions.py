"""Rows of ops with positions: indexing, sorting, searching, creation."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import luminal as lm
from tests.conformance.rows import ANY, Draw, Row, along, by_torch, function, several

NUMBERS = ("float32", "float64", "bfloat16", "int64", "uint8")
FOUR = Draw(0, 4, "int64")  # positions in an extent of 5
VALUES = Draw(-9, 9)


def by(op: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """`expected` and `against` of a torch function with further arguments."""
    return {
        "expected": by_torch(lambda *x: getattr(torch, op)(*x, *args, **kwargs)),
        "against": f"torch.{op}",
    }


def indexed(op: str, expected: Any, shapes: list[Any], draws: list[Draw], **more: Any) -> Row:
    more.setdefault("dtypes", ANY)
    return several(op, expected, shapes, draws, **more)


READING = [
    indexed("gather", lambda x, i: np.take_along_axis(x, i, 1), [(3, 5), (3, 7)], [VALUES, FOUR],
            call=lambda x, i: x.gather(1, i), against="numpy.take_along_axis",
            others={"empty": [(3, 5), (3, 0)]},
            note="the indices' shape, as PyTorch; NumPy's take_along_axis broadcasts"),
    indexed("take", lambda x, i: np.take(x, i, 1), [(3, 5), (2, 7)], [VALUES, Draw(-5, 4, "int64")],
            call=lambda x, i: x.take(i, 1), against="numpy.take",
            others={"empty": [(3, 5), (0,)], "0-d": [(3, 5), ()]},
            note="with a dim as NumPy; without one both take from the flattened tensor"),
    indexed("index_select", lambda x, i: np.take(x, i, 1), [(3, 5), (7,)], [VALUES, FOUR],
            call=lambda x, i: x.index_select(1, i), against="numpy.take"),
    indexed("take_along_dim", lambda x, i: np.take_along_axis(x, i, 1), [(3, 5), (3, 7)],
            [VALUES, FOUR], call=lambda x, i: x.take_along_dim(i, 1),
            against="numpy.take_along_axis"),
    indexed("embedding", lambda i, w: w[i], [(3, 7), (5, 2)], [FOUR, VALUES],
            against="numpy subscript", others={"empty": [(0,), (5, 2)], "0-d": [(), (5, 2)]}),
    indexed("one_hot", lambda i: (i[..., None] == np.arange(5)).astype(np.int64), [(3, 7)], [FOUR],
            call=lambda i: i.one_hot(5), against="torch.nn.functional.one_hot", dtypes=("int64",),
            others={"0-d": [()], "empty": [(0,)]}),
]  # fmt: skip


def _scattered(x: Any, i: Any, src: Any) -> Any:
    out = x.copy()
    np.put_along_axis(out, i, src, 1)
    return out


WRITING = [
    indexed("scatter", _scattered, [(3, 5), (3, 7), (3, 7)], [VALUES, FOUR, VALUES],
            call=lambda x, i, s: x.scatter(1, i, s), against="numpy.put_along_axis",
            others={"empty": [(3, 5), (3, 0), (3, 0)]},
            note="the last of equal positions wins and has the gradient; PyTorch's goes to all"),
    indexed("scatter_add", by_torch(lambda x, i, s: x.scatter_add(1, i, s)),
            [(3, 5), (3, 7), (3, 7)], [VALUES, FOUR, VALUES],
            call=lambda x, i, s: x.scatter_add(1, i, s), dtypes=NUMBERS, largest=True,
            against="torch.scatter_add"),
    indexed("index_add", by_torch(lambda x, i, s: x.index_add(1, i, s)),
            [(3, 5), (7,), (3, 7)], [VALUES, FOUR, VALUES],
            call=lambda x, i, s: x.index_add(1, i, s), dtypes=NUMBERS, largest=True,
            against="torch.index_add"),
    indexed("index_copy", by_torch(lambda x, i, s: x.index_copy(1, i, s)),
            [(3, 5), (1,), (3, 1)], [VALUES, FOUR, VALUES],
            call=lambda x, i, s: x.index_copy(1, i, s), against="torch.index_copy"),
    *(indexed(f"scatter_reduce {how}",
              by_torch(lambda x, i, s, how=how: x.scatter_reduce(1, i, s, how)),
              [(3, 5), (3, 7), (3, 7)], [VALUES, FOUR, VALUES], largest=True,
              call=lambda x, i, s, how=how: x.scatter_reduce(1, i, s, how),
              dtypes=("float32", "float64"), against="torch.scatter_reduce")
      for how in ("sum", "prod", "amax", "amin", "mean")),
]  # fmt: skip


def _sorted(x: Any, *, descending: bool = False) -> Any:
    found = torch.sort(torch.from_numpy(np.array(x)), dim=1, descending=descending, stable=True)
    return found.values.numpy(), found.indices.numpy()


MASKS = [
    indexed("masked_scatter", by_torch(lambda x, m, s: x.masked_scatter(m > 0, s)),
            [(3, 5), (3, 5), (3, 5)], [VALUES, VALUES, VALUES], dtypes=NUMBERS,
            call=lambda x, m, s: x.masked_scatter(m > 0, s), against="torch.masked_scatter",
            note="source elements that lack read 0; PyTorch raises"),
    indexed("index_fill", by_torch(lambda x, i: x.index_fill(1, i, 7)), [(3, 5), (2,)],
            [VALUES, FOUR], call=lambda x, i: x.index_fill(1, i, 7), dtypes=NUMBERS,
            against="torch.index_fill"),
    indexed("embedding_bag", by_torch(lambda i, w: F.embedding_bag(i, w)), [(3, 7), (5, 2)],
            [FOUR, VALUES], call=lambda i, w: lm.embedding_bag(i, w), largest=True,
            dtypes=("float32", "float64"), against="torch.nn.functional.embedding_bag"),
]  # fmt: skip

ORDER = [
    along("sort", _sorted, (-9, 9), NUMBERS, call=lambda x: x.sort(1), empty=(0, 5, 7),
          against="torch.sort(stable)", note="(values, indices), as PyTorch; always stable"),
    along("sort descending", lambda x: _sorted(x, descending=True), (-9, 9), NUMBERS,
          call=lambda x: x.sort(1, descending=True), against="torch.sort(stable)"),
    along("argsort", lambda x: np.argsort(x, 1, kind="stable"), (-9, 9), NUMBERS,
          call=lambda x: x.argsort(1), against="numpy.argsort(stable)"),
    along("topk", lambda x: tuple(each[:, :3] for each in _sorted(x, descending=True)), (-9, 9),
          NUMBERS, call=lambda x: x.topk(3, 1), against="torch.sort(stable)", empty=(0, 5, 7),
          note="of equals the first; PyTorch leaves it open"),
    along("kthvalue", lambda x: tuple(each[:, 2] for each in _sorted(x)), (-9, 9), NUMBERS,
          call=lambda x: x.kthvalue(3, 1), against="torch.sort(stable)", empty=(0, 5, 7)),
    along("msort", lambda x: np.sort(x, 0), (-9, 9), NUMBERS, against="numpy.sort"),
]  # fmt: skip

SEARCH = [
    several("bucketize", lambda x, a: np.searchsorted(np.sort(a), x), [(3, 5), (7,)],
            dtypes=("float32", "float64", "int64"),
            call=lambda x, a: x.bucketize(a.sort().values), against="numpy.searchsorted",
            draws=[VALUES, VALUES], others={"0-d": [(), (7,)], "empty": [(0,), (7,)]}),
    several("searchsorted", lambda a, x: np.searchsorted(np.sort(a), x), [(7,), (3, 5)],
            dtypes=("float32", "float64", "int64"),
            call=lambda a, x: lm.searchsorted(a.sort().values, x),
            against="numpy.searchsorted", draws=[VALUES, VALUES],
            others={"0-d": [(7,), ()], "empty": [(7,), (0,)]},
            note="NaN is the greatest, as NumPy; of a sequence with NaN PyTorch's places differ"),
]  # fmt: skip


COUNTS = [
    indexed("bincount", lambda i: np.bincount(i[(i >= 0) & (i < 5)], minlength=5), [(13,)],
            [Draw(-2, 8, "int64")], call=lambda i: i.bincount(size=5), dtypes=("int64",),
            against="numpy.bincount", others={"empty": [(0,)]},
            note="`size` counts, since shapes are known before a run; without it, of constants. "
            "What lies beyond is left out; of constants below 0 an error, as both"),
    indexed("bincount of weights", lambda i, w: np.bincount(i, w, 5).astype(w.dtype),
            [(13,), (13,)], [FOUR, VALUES], call=lambda i, w: i.bincount(w, size=5),
            dtypes=("float32", "float64"), against="numpy.bincount", largest=True),
    along("histc", by_torch(lambda x: torch.histc(x, 6, -2, 2)), (-3, 3), ("float32", "float64"),
          call=lambda x: x.histc(6, -2, 2), against="torch.histc", zero_d=True,
          note="of a range with NaN or infinities nothing is counted; PyTorch raises"),
    indexed("isin", np.isin, [(3, 5), (7,)], [FOUR, FOUR], call=function("isin"),
            dtypes=("int64",), others={"empty": [(0,), (7,)], "0-d": [(), ()]}),
    indexed("combinations", by_torch(torch.combinations), [(5,)], [VALUES], dynamic=False,
            call=function("combinations"), against="torch.combinations"),
]  # fmt: skip


def made(op: str, expected: Any, call: Any, against: str, **more: Any) -> Row:
    """A row of an op that makes a tensor: the operand only gives its graph, shape and dtype."""
    return along(op, expected, dtypes=("float32", "float64", "int64"), call=call, against=against,
                 broadcast=False, **more)  # fmt: skip


CREATION = [
    made("zeros", np.zeros_like, lambda x: x.graph.zeros(x.extents, x.dtype), "numpy.zeros"),
    made("ones", np.ones_like, lambda x: x.graph.ones(x.extents, x.dtype), "numpy.ones"),
    made("full", lambda x: np.full_like(x, 7), lambda x: x.graph.full(x.extents, 7, x.dtype),
         "numpy.full"),
    made("arange", lambda x: np.arange(-x.shape[0], 2 * x.shape[0], 3),
         lambda x: x.graph.arange(-1 * x.extents[0], 2 * x.extents[0], 3), "numpy.arange",
         note="integers give int64, floats float32, as PyTorch"),
    made("iota", lambda x: np.broadcast_to(np.arange(x.shape[1])[:, None], x.shape),
         lambda x: x.graph.iota(x.extents, 1), "numpy.arange"),
    made("linspace", lambda x: np.linspace(-2, 3, x.shape[1]).astype(np.float32),
         lambda x: x.graph.linspace(-2, 3, x.shape[1], "float32"), "numpy.linspace",
         result="float32", largest=True, empty=None),
    made("eye", lambda x: np.eye(x.shape[0], x.shape[1], dtype=x.dtype),
         lambda x: x.graph.eye(x.extents[0], x.extents[1], x.dtype), "numpy.eye"),
]  # fmt: skip

ROWS: list[Row] = [*READING, *WRITING, *MASKS, *ORDER, *SEARCH, *COUNTS, *CREATION]
