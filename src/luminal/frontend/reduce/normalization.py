"""Normalisations: to mean 0 and variance 1 over some dims, and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base.errors import ShapeError
from luminal.frontend.handle import axes_of, axis_of, describe, in_float, numpy_names, takes_0d
from luminal.frontend.matrices.matmul import widens
from luminal.frontend.movement.views import view_of
from luminal.frontend.pointwise.binary import where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.reduce.reductions import Dims, greatest, sum
from luminal.frontend.reduce.statistics import mean
from luminal.shape import view as views
from luminal.shape.expression import const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


@widens
@numpy_names
@in_float
def layer_norm(
    x: Tensor,
    dim: int | Sequence[int] = -1,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over `dim`.

    `weight` and `bias` have the shape of those dims. Ba et al., arXiv 1607.06450.
    """
    axes = axes_of("layer_norm", dim, x.ndim)
    return _affine(_standard(x, axes, eps), axes, weight, bias)


@widens
@numpy_names
@in_float
def rms_norm(
    x: Tensor, dim: int | Sequence[int] = -1, weight: Tensor | None = None, eps: float = 1e-6
) -> Tensor:
    """x / sqrt(mean(x * x) + eps) * weight over `dim`. Zhang and Sennrich, arXiv 1910.07467."""
    axes = axes_of("rms_norm", dim, x.ndim)
    return _affine(x * (mean(x * x, axes, keepdim=True) + eps).rsqrt(), axes, weight, None)


@widens
@in_float
def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """layer_norm over each group of channels (dim 1) and all dims behind; affine per channel.

    ShapeError unless the groups divide the channels. Wu and He, arXiv 1803.08494.
    """
    channels = x.extents[1] if x.ndim > 1 else const(1)
    if x.ndim < 2 or num_groups < 1 or (channels.is_const and channels.value % num_groups):
        raise ShapeError(
            f"group_norm: dim 1 of {describe(x)} does not divide into {num_groups} groups"
        )
    grouped = x.unflatten(1, (num_groups, -1))
    normal = _standard(grouped, tuple(range(2, grouped.ndim)), eps).reshape(x.extents)
    return _affine(normal, (1,), weight, bias)


@in_float
def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """layer_norm over the dims behind the channels (dim 1), or by the running statistics.

    `weight` and `bias` are per channel; `momentum` is for who moves the statistics, as in
    `batch_norm`. Ulyanov et al., arXiv 1607.08022.
    """
    if use_input_stats:
        return _affine(_standard(x, tuple(range(2, x.ndim)), eps), (1,), weight, bias)
    if running_mean is None or running_var is None:
        raise ShapeError("instance_norm: no statistics; pass running_mean and running_var")
    return batch_norm(x, running_mean, running_var, weight, bias, eps=eps)


@in_float
def batch_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    dim: int = 1,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias per channel `dim`, by the running statistics.

    In training by the statistics of x; running ones are then the caller's to move (nn.BatchNorm2d
    does, by `momentum`). What depends on weights only is computed once per setting.
    Ioffe and Szegedy, arXiv 1502.03167.
    """
    axis = axis_of("batch_norm", min(dim, x.ndim - 1), x.ndim)  # of a vector, dim 0
    if training:
        others = tuple(k for k in range(x.ndim) if k != axis)
        return _affine(_standard(x, others, eps), (axis,), weight, bias)
    if running_mean is None or running_var is None:
        raise ShapeError("batch_norm: no statistics; pass running_mean and running_var")
    scale = (running_var + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    return _affine(x - _along(running_mean, x.ndim, (axis,)), (axis,), scale, bias)


@in_float
def local_response_norm(
    x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """x / (k + alpha * mean of x * x over `size` neighbouring channels) ** beta.

    Channels are dim 1; beyond the first and the last, zeros. Krizhevsky et al., 2012.
    """
    if x.ndim < 3:
        raise ShapeError(f"local_response_norm: {describe(x)}; it takes (batch, channels, ...)")
    none = (const(0), const(0))
    amounts = (none, (const(size // 2), const((size - 1) // 2)), *(none,) * (x.ndim - 2))
    padded = view_of(x * x, views.pad(x.extents, amounts))
    ones = const(1), const(1)
    windows = view_of(padded, views.window(padded.extents, 1, const(size), *ones, x.extents[1]))
    return x / (mean(windows, -1) * alpha + k) ** beta


def _standard(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    """(x - mean) / sqrt(var + eps) over `axes`."""
    centred = x - mean(x, axes, keepdim=True)
    return centred * (mean(centred * centred, axes, keepdim=True) + eps).rsqrt()


def _along(vector: Tensor, rank: int, axes: tuple[int, ...]) -> Tensor:
    """`vector`, whose dims are `axes` of a tensor of `rank`, made to broadcast with it."""
    if vector.ndim != len(axes):
        raise ShapeError(f"norm: {describe(vector)} does not have the {len(axes)} dims {axes}")
    return vector.unsqueeze(tuple(k for k in range(rank) if k not in axes))


def _affine(x: Tensor, axes: tuple[int, ...], weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """x * weight + bias, each optional."""
    if weight is not None:
        x = x * _along(weight, x.ndim, axes)
    return x if bias is None else x + _along(bias, x.ndim, axes)


# --- logits ---------------------------------------------------------------------------------------
#
# The greatest value counts as a constant in derivatives. Reductions over nothing give nothing.


def _below_max(x: Tensor, axis: int) -> Tensor:
    """x - max along `axis`."""
    return x - greatest(x, (axis,), keepdim=True).stop_gradient()


@widens
@numpy_names
@takes_0d
def softmax(x: Tensor, dim: int = -1, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`, of x - max; x is first cast to `dtype`."""
    return _softmax(x if dtype is None else x.cast(dtype), axis_of("softmax", dim, x.ndim))


def _softmax_derivative(g: Tensor, y: Tensor, x: Tensor, axis: int) -> Tensor:
    weighted = g * y
    return weighted - y * sum(weighted, axis, keepdim=True)


@in_float
@differentiated(_softmax_derivative)
def _softmax(x: Tensor, axis: int) -> Tensor:
    e = _below_max(x, axis).exp()
    return e / sum(e, axis, keepdim=True)


@widens
@numpy_names
@takes_0d
def log_softmax(x: Tensor, dim: int = -1, dtype: Any = None) -> Tensor:
    """log(softmax(x)) along `dim`, without its underflow: b - log(sum(exp(b))) of b = x - max."""
    return _log_softmax(x if dtype is None else x.cast(dtype), axis_of("log_softmax", dim, x.ndim))


@in_float
@differentiated(lambda g, y, x, axis: g - y.exp() * sum(g, axis, keepdim=True))
def _log_softmax(x: Tensor, axis: int) -> Tensor:
    below = _below_max(x, axis)
    return below - sum(below.exp(), axis, keepdim=True).log()


@numpy_names
def softmin(x: Tensor, dim: int = -1, dtype: Any = None) -> Tensor:
    """The softmax of negated elements: softmax(-x)."""
    return softmax(-x, dim, dtype)


@widens
@numpy_names
@in_float
def logsumexp(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))) over `dim`: log(sum(exp(x - max))) + max; -inf of nothing and of -inf."""
    result = _log_sum(x, axes := axes_of("logsumexp", dim, x.ndim))
    return result if keepdim else result.squeeze(axes)


def _log_sum_derivative(g: Tensor, y: Tensor, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Equal infinities of one sign count as 0 apart."""
    apart = where((x == y) & (abs(y) == np.inf), 0, x - y)
    return g * apart.exp()


@differentiated(_log_sum_derivative)
def _log_sum(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    top = greatest(x, axes, keepdim=True).stop_gradient()
    total = sum((x - top).exp(), axes, keepdim=True).log() + top
    return where(abs(top) == np.inf, top, total)
