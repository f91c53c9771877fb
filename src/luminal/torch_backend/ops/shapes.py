"""Operators that move elements: views, joins, repeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import luminal as lm
from luminal.frontend.movement.padding import pad as padded
from luminal.shape.expression import Expression, as_expression
from luminal.shape.prove import prove
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.layout import inverse, memory_order
from luminal.torch_backend.ops.registry import Planned, row, rows

Tensor = lm.Tensor
Size = int | Expression

_SAME = """
    cat diagonal diagonal_scatter diag_embed permute rot90 select select_scatter
    split_with_sizes stack t tile transpose tril triu unbind unsqueeze unsafe_split_with_sizes
""".split()

rows({name: getattr(lm, name) for name in _SAME})


@row("view.default", "_unsafe_view", "reshape")
def view(x: Tensor, size: Sequence[Size]) -> Tensor:
    return x.reshape(*size)


@row("split.Tensor", "unsafe_split", knows_results=True)
def split(x: Tensor, split_size: Size, dim: int = 0, *, results: Sequence[Any]) -> Sequence[Tensor]:
    """The number of parts is known also where sizes are open."""
    whole = [split_size] * (len(results) - 1)
    return lm.split(x, [*whole, _extent(x, dim) - split_size * len(whole)], dim)


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
    # PyTorch has the greatest 64-bit integer where no end was given.
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


def _cut(x: Tensor, dim: int, start: Size, end: Size, step: int, count: Size) -> tuple[Size, Size]:
    """Bounds that PyTorch has cut to the extent, as the length of its own result says.

    Which of two open sizes is the lesser is a condition (guard) under which it calls the program.
    """
    if step != 1:
        return start, end
    if isinstance(count, int) and count == 0:
        return 0, 0
    n = _extent(x, dim)
    if as_expression(count) == as_expression(n):
        return 0, n
    return (start, start + count) if prove(as_expression(start) >= 0) else (start, end)


@row("slice", knows_results=True)
def slice_(
    x: Tensor, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1,
    *, results: Sequence[Planned],
) -> Tensor:  # fmt: skip
    dim = dim % x.ndim
    start, end = _bounds(x, dim, start, end)
    if isinstance(start, Expression) or isinstance(end, Expression):
        start, end = _cut(x, dim, start, end, step, results[0].shape[dim])
    return x[(*[slice(None)] * dim, slice(start, end, step))]


@row("slice_scatter")
def slice_scatter(
    x: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    start, end = _bounds(x, dim, start, end)
    return lm.slice_scatter(x, src, dim, start, end, step)


@row("unfold")
def unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    if not x.ndim:  # a vector of one
        return x.reshape(1)[:size]
    return x.unfold(dimension, size, step)


def _row_major(what: str, x: Tensor, held: torch.Tensor) -> Tensor:
    """`x` with its dims in the order of memory, where it fills its storage from the start."""
    order = memory_order(held.shape, held.stride())
    if order is None or held.storage_offset() != 0:
        raise UnsupportedError(f"{what}: of a tensor with gaps, or within another one's storage")
    return x.permute(*order)


def _is_same_place(
    x: Tensor, held: torch.Tensor, size: Sequence[Size], stride: Sequence[Size], offset: Size | None
) -> bool:
    """Are these the tensor's own sizes and strides, but for strides of dims of 1?"""
    if tuple(size) != x.shape or offset not in (None, 0) or held.storage_offset() != 0:
        return False
    strides = zip(size, stride, held.stride(), strict=True)
    return all(
        n == 1 or (isinstance(actual, int) and step == actual) for n, step, actual in strides
    )


@row("as_strided", knows_layout=True)
def as_strided(
    x: Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Size | None = None,
    *, held: torch.Tensor,
) -> Tensor:  # fmt: skip
    if _is_same_place(x, held, size, stride, storage_offset):
        return x
    if any(isinstance(n, Expression) for n in (*size, *stride, storage_offset)):
        raise UnsupportedError("aten.as_strided: sizes or strides are open")
    whole = _row_major("aten.as_strided", x, held)
    return lm.as_strided(whole, size, stride, storage_offset or 0)


@row("as_strided_scatter", knows_layout=True)
def as_strided_scatter(
    x: Tensor, src: Tensor, size: Sequence[Any], stride: Sequence[Any],
    storage_offset: int | None = None, *, held: torch.Tensor,
) -> Tensor:  # fmt: skip
    if any(isinstance(n, Expression) for n in (*size, *stride, storage_offset)):
        raise UnsupportedError("aten.as_strided_scatter: sizes or strides are open")
    order = memory_order(held.shape, held.stride())
    whole = _row_major("aten.as_strided_scatter", x, held)
    written = lm.as_strided_scatter(whole, src, size, stride, storage_offset or 0)
    return written.permute(*inverse(order or ()))


@row("constant_pad_nd")
def constant_pad(x: Tensor, pad: Sequence[Any], value: float = 0) -> Tensor:
    return padded(x, tuple(pad), "constant", value)


def _padding(mode: str) -> Any:
    def pad(x: Tensor, padding: Sequence[Any]) -> Tensor:
        return padded(x, tuple(padding), mode)

    return pad


rows({f"reflection_pad{rank}d": _padding("reflect") for rank in (1, 2, 3)})
rows({f"replication_pad{rank}d": _padding("replicate") for rank in (1, 2, 3)})


@row("repeat_interleave.self_int")
def repeat_interleave(
    x: Tensor, repeats: Size, dim: int | None = None, output_size: Size | None = None
) -> Tensor:
    return lm.repeat_interleave(x, repeats, dim)
