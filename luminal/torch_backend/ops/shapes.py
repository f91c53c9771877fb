"""Operators that move elements: views, joins, repeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import luminal as lm
from luminal.frontend.padding import pad as padded
from luminal.shape.expression import Expression
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.ops.registry import row, rows

Tensor = lm.Tensor
Size = int | Expression

_SAME = """
    as_strided_scatter cat diagonal diagonal_scatter diag_embed permute rot90 select select_scatter
    split split_with_sizes stack t tile transpose tril triu unbind unsqueeze
    unsafe_split unsafe_split_with_sizes
""".split()

rows({name: getattr(lm, name) for name in _SAME})


@row("view.default", "_unsafe_view", "reshape")
def view(x: Tensor, size: Sequence[Size]) -> Tensor:
    return x.reshape(*size)


@row("squeeze")
def squeeze(x: Tensor, dim: Any = None) -> Tensor:
    return x.squeeze() if dim is None else x.squeeze(dim)


@row("expand")
def expand(x: Tensor, size: Sequence[Size], implicit: bool = False) -> Tensor:
    return x.expand(*size)


@row("repeat")
def repeat(x: Tensor, repeats: Sequence[Size]) -> Tensor:
    return x.repeat(*repeats)


@row("flip")
def flip(x: Tensor, dims: Sequence[int]) -> Tensor:
    return lm.flip(x, dims) if dims else x


@row("roll")
def roll(x: Tensor, shifts: Any, dims: Sequence[int] = ()) -> Tensor:
    if dims:
        return lm.roll(x, tuple(shifts), tuple(dims))
    return lm.roll(x, shifts[0] if isinstance(shifts, Sequence) else shifts)


def _extent(x: Tensor, dim: int) -> Size:
    return x.shape[dim]


def _bounds(x: Tensor, dim: int, start: Size | None, end: Size | None) -> tuple[Size, Size]:
    """Bounds that count from the start, within the extent where both are literal."""
    n = _extent(x, dim)
    start, end = 0 if start is None else start, n if end is None else end
    if isinstance(end, int) and end >= 2**62:
        end = n
    if isinstance(n, int):
        if isinstance(start, int):
            start = max(start + n, 0) if start < 0 else min(start, n)
        if isinstance(end, int):
            end = max(end + n, 0) if end < 0 else min(end, n)
        if isinstance(start, int) and isinstance(end, int):
            end = max(start, end)
    return start, end


@row("slice")
def slice_(
    x: Tensor, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1
) -> Tensor:
    dim = dim % x.ndim
    start, end = _bounds(x, dim, start, end)
    return x[(*[slice(None)] * dim, slice(start, end, step))]


@row("slice_scatter")
def slice_scatter(
    x: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    start, end = _bounds(x, dim, start, end)
    return lm.slice_scatter(x, src, dim, start, end, step)


@row("unfold")
def unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    return x.unfold(dimension, size, step)


@row("as_strided")
def as_strided(
    x: Tensor, size: Sequence[Size], stride: Sequence[Size], storage_offset: Size | None = None
) -> Tensor:
    if any(isinstance(n, Expression) for n in (*size, *stride, storage_offset)):
        raise UnsupportedError("aten.as_strided: sizes or strides are open")
    return lm.as_strided(x, size, stride, storage_offset or 0)


@row("constant_pad_nd")
def constant_pad(x: Tensor, pad: Sequence[Size], value: float = 0) -> Tensor:
    return padded(x, tuple(pad), "constant", value)


def _padding(mode: str) -> Any:
    def pad(x: Tensor, padding: Sequence[Size]) -> Tensor:
        return padded(x, tuple(padding), mode)

    return pad


rows({f"reflection_pad{rank}d": _padding("reflect") for rank in (1, 2, 3)})
rows({f"replication_pad{rank}d": _padding("replicate") for rank in (1, 2, 3)})


@row("repeat_interleave.self_int")
def repeat_interleave(
    x: Tensor, repeats: Size, dim: int | None = None, output_size: Size | None = None
) -> Tensor:
    return lm.repeat_interleave(x, repeats, dim)
