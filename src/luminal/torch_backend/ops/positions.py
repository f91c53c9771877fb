"""Operators that read and write at positions that tensors hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import luminal as lm
from luminal.nn import functional
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.ops.refusals import (
    refuse_far_outside,
    refuse_outside,
    refuse_where,
)
from luminal.torch_backend.ops.registry import row, rows

Tensor = lm.Tensor

rows({name: getattr(lm, name) for name in "take put bucketize searchsorted".split()})
rows({"masked_scatter": lm.masked_scatter, "nonzero_static": lm.nonzero_static})


def _at(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`function` of a tensor, a dim and positions along it, which do not count from the end."""

    @wraps(function)
    def placed(x: Tensor, dim: int, index: Tensor, *args: Any, **named: Any) -> Tensor:
        refuse_outside(index, x.shape[dim] if x.ndim else 1)
        return function(x, dim, index, *args, **named)

    return placed


rows(
    {
        name: _at(getattr(lm, name))
        for name in "index_add index_copy index_reduce index_select scatter_add".split()
    }
)
rows({"scatter.src": _at(lm.scatter), "scatter.value": _at(lm.scatter)})
rows({"index_fill": lm.index_fill})


@row("scatter.reduce", "scatter.value_reduce")
def scatter_with(x: Tensor, dim: int, index: Tensor, src: Any, reduce: str) -> Tensor:
    return _at(lm.scatter)(x, dim, index, src, reduce=reduce)


@row("scatter_reduce")
def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    return _at(lm.scatter_reduce)(x, dim, index, src, reduce, include_self=include_self)


@row("gather")
def gather(x: Tensor, dim: int, index: Tensor, sparse_grad: bool = False) -> Tensor:
    return _at(lm.gather)(x, dim, index)


def _key(x: Tensor, indices: Sequence[Tensor | None]) -> tuple[Any, ...]:
    if any(i is not None and i.dtype in (lm.bool_, lm.uint8) for i in indices):
        raise UnsupportedError("an index is a mask, whose elements would decide the shape")
    return tuple(slice(None) if i is None else i for i in indices)


@row("_unsafe_index")
def unsafe_index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    return x[_key(x, indices)]


@row("index")
def index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    key = _key(x, indices)
    _refuse_outside(x, indices)
    return x[key]


@row("_unsafe_index_put")
def unsafe_index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    return lm.index_put(x, tuple(indices), values, accumulate)


@row("index_put")
def index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    if accumulate and values.dtype != x.dtype:  # PyTorch raises, even for one value by a mask
        raise UnsupportedError(f"index_put adds {values.dtype} to {x.dtype}")
    _refuse_outside(x, indices)
    return lm.index_put(x, tuple(indices), values, accumulate)


def _refuse_outside(x: Tensor, indices: Sequence[Tensor | None]) -> None:
    for k, places in enumerate(indices):
        if places is not None and places.dtype.is_int:
            refuse_far_outside(places, x.shape[k])


@row("embedding")
def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:  # fmt: skip
    refuse_outside(indices, weight.shape[0])
    return functional.embedding(indices, weight)


@row("embedding_renorm")
def embedding_renorm(
    weight: Tensor, indices: Tensor, max_norm: float, norm_type: float = 2.0
) -> Tensor:
    """The weight with its rows at `indices` scaled down to a norm of at most `max_norm`."""
    refuse_outside(indices, weight.shape[0])
    places = indices.reshape(-1)
    rows = functional.embedding(places, weight, max_norm=max_norm, norm_type=norm_type)
    return weight.index_copy(0, places, rows)


@row("histc")
def histc(x: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    if min == max:  # the range is that of the elements
        error = RuntimeError("histc: the range of the elements is not finite")
        refuse_where(lm.logical_not(lm.isfinite(x)), error)
    return lm.histc(x, bins, min, max)


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
    positions = lm.repeat_interleave(lm.iota((n,), 0), repeats, 0, output_size)
    return positions.cast(repeats.dtype)


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
