"""Sums of products of arrays over named axes, without holding the product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from luminal.algebra.terms import Axes
from luminal.shape.expression import Symbol

Array = np.ndarray[Any, Any]
Operand = tuple[Array, Axes]


def contract(operands: Sequence[Operand], bound: Mapping[Symbol, int], out: Axes) -> Array:
    """The product of the operands, summed over the axes `bound` (with extents), with axes `out`."""
    left = _absorbed(operands)
    used = {axis for _, axes in left for axis in axes}
    # An axis that no operand has is summed over all the same: the product counts once a position.
    repeats = 1
    for axis, size in bound.items():
        repeats *= 1 if axis in used else size
    result = _product_sum(left, out)
    return result * repeats if repeats != 1 else result


def _absorbed(operands: Sequence[Operand]) -> list[Operand]:
    """Operands whose axes another one has are multiplied into it."""
    left: list[Operand] = []
    # Those with most axes first: whatever fits into another one then finds it there.
    for x, axes in sorted(operands, key=lambda operand: -len(operand[1])):
        host = next(
            (k for k, (_, host_axes) in enumerate(left) if set(axes) <= set(host_axes)), None
        )
        if host is None:
            left.append((x, axes))
        else:
            larger, host_axes = left[host]
            left[host] = (larger * _over(x, axes, host_axes), host_axes)
    return left


def _over(x: Array, axes: Axes, order: Sequence[Symbol]) -> Array:
    """`x` with dimensions `order`, of size 1 where it has no such axis."""
    x = x.transpose([axes.index(axis) for axis in order if axis in axes])
    sizes = iter(x.shape)
    return x.reshape([next(sizes) if axis in axes else 1 for axis in order])


def _product_sum(operands: Sequence[Operand], out: Axes) -> Array:
    if len(operands) == 2:
        return _matmul(operands[0], operands[1], out)
    numbers: dict[Symbol, int] = {}
    inputs: list[Any] = []
    for x, axes in operands:
        inputs += [x, [numbers.setdefault(axis, len(numbers)) for axis in axes]]
    return np.asarray(np.einsum(*inputs, [numbers[axis] for axis in out], optimize="greedy"))


def _matmul(a: Operand, b: Operand, out: Axes) -> Array:
    """Through np.matmul: axes of both that stay are the batch."""
    (x, of_x), (y, of_y) = _alone(a, b, out), _alone(b, a, out)
    batch = [axis for axis in of_x if axis in of_y and axis in out]
    summed = [axis for axis in of_x if axis in of_y and axis not in out]
    rows = [axis for axis in of_x if axis not in of_y]
    columns = [axis for axis in of_y if axis not in of_x]
    left = x.transpose([of_x.index(axis) for axis in (*batch, *rows, *summed)])
    right = y.transpose([of_y.index(axis) for axis in (*batch, *summed, *columns)])
    n, m, k = len(batch), len(rows), len(summed)
    sizes = left.shape[:n], left.shape[n : n + m], right.shape[n + k :]
    count = [int(np.prod(part, dtype=np.int64)) for part in sizes]
    depth = int(np.prod(left.shape[n + m :], dtype=np.int64))
    flat = np.matmul(
        left.reshape(count[0], count[1], depth), right.reshape(count[0], depth, count[2])
    )
    order = [*batch, *rows, *columns]
    full = flat.reshape((*sizes[0], *sizes[1], *sizes[2]))
    return np.asarray(full.transpose([order.index(axis) for axis in out]))


def _alone(operand: Operand, other: Operand, out: Axes) -> Operand:
    """The operand summed over the axes that nothing else has."""
    x, axes = operand
    private = [k for k, axis in enumerate(axes) if axis not in other[1] and axis not in out]
    return x.sum(axis=tuple(private)), tuple(a for k, a in enumerate(axes) if k not in private)
