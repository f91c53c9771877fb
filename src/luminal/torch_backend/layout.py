"""How a dense tensor lies in memory: as a row-major tensor of its dims in another order."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true


def memory_order(sizes: Sequence[Any], strides: Sequence[Any]) -> tuple[int, ...] | None:
    """The dims from the outermost in memory to the innermost; None if elements overlap or have
    gaps. Row-major tensors give 0, 1, 2 ...; sizes and strides are ints or SymInts.
    """
    dims = range(len(sizes))
    if _is_dense(sizes, strides, dims):
        return tuple(dims)
    if any(not isinstance(n, int) for n in (*sizes, *strides)):
        return _open_order(sizes, strides)
    # A dim of one place has any stride: among equal ones it is the inner one, as a last dim of one
    # place is in a row-major tensor.
    order = sorted(dims, key=lambda k: (-strides[k], sizes[k] == 1, k))
    return tuple(order) if _is_dense(sizes, strides, order) else None


def _open_order(sizes: Sequence[Any], strides: Sequence[Any]) -> tuple[int, ...] | None:
    """The order of dims of open sizes, which cannot be sorted: each is found by what lies within
    it.
    """
    order: list[int] = []
    left = sorted(range(len(sizes)), key=lambda k: (not _same(sizes[k], 1), -k))
    inner: list[Any] = []
    while (dim := next((k for k in left if _steps_over(strides[k], inner)), None)) is not None:
        left.remove(dim)
        order.insert(0, dim)
        inner.append(sizes[dim])
    return (*left, *order) if all(_same(sizes[k], 1) for k in left) else None


def _is_dense(sizes: Sequence[Any], strides: Sequence[Any], order: Sequence[int]) -> bool:
    inner: list[Any] = []
    for k in reversed(order):
        if not _same(sizes[k], 1):
            if not _steps_over(strides[k], inner):
                return False
            inner.append(sizes[k])
    return True


def _steps_over(stride: Any, inner: Sequence[Any]) -> bool:
    """Is this the stride of a dim around dense ones? PyTorch counts a length of 0 as 1."""
    if _same(stride, prod(inner)):
        return True
    return not isinstance(stride, int) and _same(stride, prod(map(_at_least_one, inner)))


def _at_least_one(size: Any) -> Any:
    if statically_known_true(size >= 1):
        return size
    return torch.sym_max(1, size)  # type: ignore[no-untyped-call]


def _same(a: Any, b: Any) -> bool:
    """Equality that adds no guards: of what is not known to be equal, False."""
    return a == b if isinstance(a, int) and isinstance(b, int) else statically_known_true(a == b)


def has_places(strides: Sequence[Any], sizes: Sequence[Any]) -> bool:
    """Has every element a place of its own, as far as literal strides show? Open ones count as
    right if none is 0.
    """
    steps = [(step, n) for step, n in zip(strides, sizes, strict=True) if not _same(n, 1)]
    if not all(isinstance(x, int) for pair in steps for x in pair):
        return all(step != 0 for step, _ in steps)
    reach = 0
    # From the smallest step: each one must reach beyond all elements that the smaller ones place,
    # or two of them meet.
    for step, n in sorted(steps):
        if step <= reach:
            return False
        reach += (n - 1) * step
    return True


def strides_of_ones(x: torch.Tensor) -> tuple[tuple[int, int], ...]:
    """The dims of one place with their strides, which are any, where these are literal."""
    pairs = enumerate(zip(x.shape, x.stride(), strict=True))
    return tuple((k, step) for k, (n, step) in pairs if _same(n, 1) and isinstance(step, int))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order that undoes `order`."""
    positions = [0] * len(order)
    for position, k in enumerate(order):
        positions[k] = position
    return tuple(positions)
