"""Operators that read and write at positions that tensors hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import luminal as lm
from luminal.hlir.attributes import InputAttrs
from luminal.nn import functional
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.ops.refusals import refuse_where
from luminal.torch_backend.ops.registry import row, rows

Tensor = lm.Tensor

_SAME = """
    index_add index_copy index_fill index_reduce index_select masked_scatter
    put scatter_add take bucketize searchsorted histc nonzero_static
""".split()

rows({name: getattr(lm, name) for name in _SAME})
rows({"scatter.src": lm.scatter, "scatter.value": lm.scatter})


@row("scatter.reduce", "scatter.value_reduce")
def scatter_with(x: Tensor, dim: int, index: Tensor, src: Any, reduce: str) -> Tensor:
    return lm.scatter(x, dim, index, src, reduce=reduce)


@row("scatter_reduce")
def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    return lm.scatter_reduce(x, dim, index, src, reduce, include_self=include_self)


@row("gather")
def gather(x: Tensor, dim: int, index: Tensor, sparse_grad: bool = False) -> Tensor:
    """Computed indices are checked like those that are arguments: targets of a loss come so."""
    if x.ndim and not isinstance(index.value.node.attrs, InputAttrs):
        n = x.shape[dim]
        refuse_where((index < 0) | (index >= n), IndexError(f"an index is out of range for {n}"))
    return lm.gather(x, dim, index)


def _key(x: Tensor, indices: Sequence[Tensor | None]) -> tuple[Any, ...]:
    if any(i is not None and i.dtype in (lm.bool_, lm.uint8) for i in indices):
        raise UnsupportedError("an index is a mask, whose elements would decide the shape")
    return tuple(slice(None) if i is None else i for i in indices)


@row("index", "_unsafe_index")
def index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    return x[_key(x, indices)]


@row("index_put", "_unsafe_index_put")
def index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    return lm.index_put(x, tuple(indices), values, accumulate)


@row("embedding")
def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:  # fmt: skip
    return functional.embedding(indices, weight)


@row("embedding_renorm")
def embedding_renorm(
    weight: Tensor, indices: Tensor, max_norm: float, norm_type: float = 2.0
) -> Tensor:
    """The weight with its rows at `indices` scaled down to a norm of at most `max_norm`."""
    places = indices.reshape(-1)
    rows = functional.embedding(places, weight, max_norm=max_norm, norm_type=norm_type)
    return weight.index_copy(0, places, rows)


@row("isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor")
def isin(elements: Any, tests: Any, assume_unique: bool = False, invert: bool = False) -> Tensor:
    return lm.isin(elements, tests, invert=invert)


@row("repeat_interleave.Tensor")
def repeat_interleave(repeats: Tensor, output_size: Any = None) -> Tensor:
    """Each position as often as its element says."""
    if output_size is None:
        raise UnsupportedError("the counts would decide the size; pass output_size=, their sum")
    wrong = RuntimeError(
        f"repeat_interleave: counts are to be at least 0, with the sum {output_size}"
    )
    refuse_where((repeats < 0).any() | (repeats.sum() != output_size), wrong)
    n = repeats.extents[0]
    found = lm.repeat_interleave(lm.iota((n,), 0), repeats, 0, output_size)
    return found.cast(repeats.dtype)


@row("histogram.bin_ct")
def histogram(
    x: Tensor, bins: int = 100, *, range: Sequence[float] | None = None,
    weight: Tensor | None = None, density: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if range is None:
        refuse_where(~x.isfinite(), RuntimeError("torch.histogram: the range is not finite"))
    ends = None if range is None else (range[0], range[1])
    return lm.histogram(x, bins, range=ends, weight=weight, density=density)


@row("histogram.bins_tensor")
def histogram_between(
    x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    return lm.histogram(x, bins, weight=weight, density=density)
