"""Shapes: reshaping, joining, repeating, and how shapes broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from luminal.array_api.array import Array, common_dtype, memory_of, of_arrays, of_memory
from luminal.array_api.complex_numbers import cast
from luminal.base.errors import DTypeError, ShapeError
from luminal.frontend.handle import axes_of, describe
from luminal.frontend.movement import joining, padding, views
from luminal.frontend.tensor import Tensor
from luminal.shape.expression import const


@of_arrays
def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """x repeated to `shape`."""
    return views.broadcast_to(x, shape)


@of_arrays
def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """All in their common shape."""
    return [*joining.broadcast_tensors(*arrays)]


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape in which arrays of these shapes meet; raises ShapeError where there is none."""
    try:
        return np.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        shown = ", ".join(map(str, map(tuple, shapes)))
        raise ShapeError(
            f"broadcast_shapes: {shown} do not broadcast; make extents equal"
        ) from None


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Any:
    """Arrays one behind the other along `axis` (None: each flattened), in their common dtype."""
    return _concat(_cast_alike(arrays), axis)


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Any:
    """Arrays of one shape beside one another along a new `axis`, in their common dtype."""
    return _stack(_cast_alike(arrays), axis)


_concat, _stack = of_arrays(views.concat), of_arrays(views.stack)


def _cast_alike(arrays: Sequence[Any]) -> list[Any]:
    if not any(isinstance(x, Array) for x in arrays):
        return [*arrays]
    dtype = common_dtype(arrays)
    return [x if x.dtype is dtype else _cast(x, dtype) for x in arrays]


@of_arrays
def _cast(x: Tensor, dtype: Any) -> Tensor:
    return cast(x, dtype)  # type: ignore[no-any-return]


@of_arrays
def expand_dims(x: Tensor, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """x with a new dim of extent 1 at `axis`."""
    return views.unsqueeze(x, axis)


@of_arrays
def flip(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Backwards along `axis`; None: along all."""
    return views.flip(x, dim=axis)


@of_arrays
def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """x with the dims `source` at `destination`, the others in their order."""
    return views.movedim(x, source, destination)


@of_arrays
def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """x with its dims in this order."""
    return views.permute(x, axes)


@of_arrays
def reshape(x: Tensor, /, shape: Sequence[int], *, copy: bool | None = None) -> Tensor:
    """The elements in another shape, one extent of which may be -1. Arrays are values: `copy` says
    nothing that could be seen.
    """
    return views.reshape(x, shape)


@of_arrays
def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """Shifted along `axis`; what leaves at one end enters at the other. None: of x flattened.

    One shift for several axes is for each of them; shifts along one axis add up.
    """
    if axis is None:
        return views.roll(x, shift)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    for amount, along in zip(shifts, axes, strict=True):
        x = views.roll(x, amount, along)
    return x


@of_arrays
def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """x without the dims `axis`, which have one element; raises ShapeError for others."""
    for k in axes_of("squeeze", axis, x.ndim):
        if x.extents[k] != const(1):
            raise ShapeError(
                f"squeeze: dim {k} of {describe(x)} has {x.extents[k]} elements, not 1"
            )
    return views.squeeze(x, axis)


@of_arrays
def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """x repeated as a whole, so many times along each dim, counted from the last."""
    return joining.tile(x, repetitions)


@of_arrays
def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along `axis`."""
    return tuple(joining.unbind(x, axis))


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
    """Each element along `axis` (None: of x flattened) several times in a row.

    Where an array says how often, x is computed first.
    """
    if isinstance(x, Array) and isinstance(repeats, Array):
        if not repeats.dtype.is_int:
            raise DTypeError(
                f"repeat: the counts are {repeats.dtype.name}, no integers; use astype"
            )
        # The counts decide the shape, which a program's dims must have before it runs.
        return of_memory(np.repeat(memory_of(x), memory_of(repeats), axis))
    return _repeat(x, repeats, axis)


_repeat = of_arrays(joining.repeat_interleave)


@of_arrays
def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinate grids of 1-d arrays; "xy", the default, exchanges the first two dims."""
    return [*joining.meshgrid(*arrays, indexing=indexing)]


@of_arrays
def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The part of the last two dims at and below diagonal `k`, zeros above it."""
    return padding.tril(x, k)


@of_arrays
def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The part of the last two dims at and above diagonal `k`, zeros below it."""
    return padding.triu(x, k)


__all__ = [
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims", "flip",
    "meshgrid", "moveaxis", "permute_dims", "repeat", "reshape", "roll", "squeeze", "stack", "tile",
    "tril", "triu", "unstack",
]  # fmt: skip
