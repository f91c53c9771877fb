"""layer_norm and rms_norm as torch.nn.functional calls them: by the shape of the last dims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from luminal.base.errors import ShapeError
from luminal.frontend.handle import Extent, describe
from luminal.frontend.reduce import normalization

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[Extent],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """`Tensor.layer_norm` over the last dims, which have the extents `normalized_shape`."""
    return normalization.layer_norm(x, _last("layer_norm", x, normalized_shape), weight, bias, eps)


def rms_norm(
    x: Tensor,
    normalized_shape: Sequence[Extent],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """`Tensor.rms_norm` over the last dims; `eps` is by default the dtype's own epsilon."""
    dims = _last("rms_norm", x, normalized_shape)
    return normalization.rms_norm(x, dims, weight, x.dtype.epsilon if eps is None else eps)


def _last(what: str, x: Tensor, shape: Sequence[Extent]) -> tuple[int, ...]:
    """The last dims of x; ShapeError if `shape` is not theirs."""
    if isinstance(shape, int):
        shape = (shape,)
    count = len(shape)
    if not count or x.extents[x.ndim - count :] != x.graph.extents(tuple(shape)):
        raise ShapeError(f"{what}: {describe(x)} does not end in {tuple(shape)}")
    return tuple(range(-count, 0))
