"""Reductions of runs of rows, whose lengths or borders a tensor holds (segment_reduce)."""

from __future__ import annotations

from typing import Any

import luminal as lm
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.ops.gradients import pulled
from luminal.torch_backend.ops.refusals import refuse_where
from luminal.torch_backend.ops.registry import row

Tensor = lm.Tensor

_INF = float("inf")
_REDUCTIONS = {
    "sum": ("sum", 0.0), "mean": ("sum", 0.0), "prod": ("prod", 1.0), "max": ("amax", -_INF),
    "min": ("amin", _INF),
}  # fmt: skip


@row("segment_reduce")
def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: Any = None,
) -> Tensor:  # fmt: skip
    """Along `axis`, a result for each run; the dims before it have runs of their own."""
    if indices is not None:
        raise UnsupportedError("aten.segment_reduce: indices")
    ends = _ends(lengths, offsets)
    if lengths is not None and not unsafe:
        wrong = (ends[..., -1:] != data.extents[axis]) if lengths.shape[-1] != 0 else None
        for condition in (lengths < 0, wrong):
            if condition is not None:
                refuse_where(condition, RuntimeError("segment_reduce: lengths are to be at least 0"
                             " and add up to the size of the axis"))  # fmt: skip
    return _reduced(data, reduce, ends, axis, initial)


def _ends(lengths: Tensor | None, offsets: Tensor | None) -> Tensor:
    """Where each run ends; runs follow each other from the start."""
    if offsets is not None:
        refuse_where(offsets[..., :1] != 0, RuntimeError("segment_reduce: an offset is not 0"))
        return offsets[..., 1:]
    assert lengths is not None
    return lm.cumsum(lengths, -1)


def _reduced(data: Tensor, reduce: str, ends: Tensor, axis: int, initial: Any) -> Tensor:
    name, neutral = _REDUCTIONS[reduce]
    lead, (count, *rest) = data.extents[:axis], data.extents[axis:]
    runs = ends.extents[-1]
    at = lm.iota((*lead, count), axis).cast(lm.int64)
    run = lm.searchsorted(ends.cast(lm.int64), at, right=True)  # how many end before, or there
    index = run.reshape(*lead, count, *(1,) * len(rest)).expand(*data.extents)
    start = lm.full((*lead, runs + 1, *rest), neutral if initial is None else initial, data.dtype)
    reduced = start.scatter_reduce(axis, index, data, name, include_self=True)
    reduced = reduced.narrow(axis, 0, runs)  # beyond the last run
    if reduce != "mean":
        return reduced
    starts = lm.cat([lm.zeros((*lead, 1), ends.dtype), ends[..., :-1]], -1)
    size = (ends - starts).cast(data.dtype).reshape(*lead, runs, *(1,) * len(rest))
    if initial is None:
        return reduced / size
    return lm.where(size == 0, reduced, reduced / lm.where(size == 0, 1, size))


@row("_segment_reduce_backward")
def of_data(
    g: Tensor, reduced: Tensor, data: Tensor, reduce: str, *, lengths: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, initial: Any = None,
) -> Tensor:  # fmt: skip
    ends = _ends(lengths, offsets)
    return pulled(lambda x: _reduced(x, reduce, ends, axis, initial), g, data)[0]
