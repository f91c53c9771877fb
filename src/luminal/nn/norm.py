"""Normalisation layers; running statistics are States that training assigns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from luminal.base.dtypes import float32, int64
from luminal.base.errors import ShapeError
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import describe, work_dtype
from luminal.frontend.reduce.normalization import batch_norm
from luminal.frontend.tensor import Tensor
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.nn import init
from luminal.nn.misuse import unfit
from luminal.nn.module import Module
from luminal.shape.expression import const, product_of


def _affine(
    shape: Sequence[int], weight: bool, bias: bool, dtype: Any
) -> tuple[Parameter | None, Parameter | None]:
    """Ones and zeros, each if asked for."""
    return (
        init.parameter(shape, init.ones, dtype) if weight else None,
        init.parameter(shape, init.zeros, dtype) if bias else None,
    )


def _factor(weight: Tensor) -> Tensor:
    """1 + weight, in float32: of bfloat16 the sum would keep 8 bits of the weight's part."""
    return weight.cast(work_dtype(weight.dtype)) + 1


def _listed(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


class RMSNorm(Module):
    """`x / sqrt(mean(x * x) + eps) * weight` over the last dims; eps None: x's machine epsilon.

    `zero_centered`: the factor is `1 + weight` and weights start at 0, as in Gemma.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        dtype: Any = float32,
        zero_centered: bool = False,
    ) -> None:
        self.normalized_shape = _listed(normalized_shape)
        self.dims = tuple(range(-len(self.normalized_shape), 0))
        start = init.zeros if zero_centered else init.ones
        affine = elementwise_affine
        self.weight = init.parameter(self.normalized_shape, start, dtype) if affine else None
        self.eps, self.zero_centered = eps, zero_centered

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        eps = float(np.finfo(work_dtype(x.dtype).numpy).eps) if self.eps is None else self.eps
        weight = self.read(self.weight, x)
        if self.zero_centered and weight is not None:
            weight = _factor(weight)
        try:
            return x.rms_norm(self.dims, weight, eps)
        except ShapeError:
            raise unfit(self, x, self.normalized_shape, "normalized_shape") from None


class LayerNorm(Module):
    """`(x - mean) / sqrt(var + eps) * weight + bias` over the last dims.

    `zero_centered`: the factor is `1 + weight` and weights start at 0, as in Nemotron.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: Any = float32,
        zero_centered: bool = False,
    ) -> None:
        self.normalized_shape = _listed(normalized_shape)
        self.dims = tuple(range(-len(self.normalized_shape), 0))
        affine = elementwise_affine
        self.weight, self.bias = _affine(self.normalized_shape, affine, affine and bias, dtype)
        if zero_centered and affine:
            self.weight = init.parameter(self.normalized_shape, init.zeros, dtype)
        self.eps, self.zero_centered = eps, zero_centered

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        weight, bias = self.read(self.weight, x), self.read(self.bias, x)
        if self.zero_centered and weight is not None:
            weight = _factor(weight)
        try:
            return x.layer_norm(self.dims, weight, bias, self.eps)
        except ShapeError:
            raise unfit(self, x, self.normalized_shape, "normalized_shape") from None


class HeadNorm(Module):
    """A layer norm of every head's features, with weights of its own, (heads, head_dim)."""

    def __init__(self, heads: int, head_dim: int, eps: float = 1e-5, dtype: Any = float32) -> None:
        self.normalized_shape, self.eps = (head_dim,), eps
        self.weight = init.parameter((heads, head_dim), init.ones, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(..., heads, head_dim) to the same shape."""
        normed = x.layer_norm((-1,), None, None, self.eps)
        return (normed * self.read(self.weight, x)).cast(x.dtype)


class GroupNorm(Module):
    """Each group of channels (dim 1) normalised over its channels and all further dims."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: Any = float32,
    ) -> None:
        if num_channels % num_groups:
            raise ShapeError(
                f"GroupNorm: {num_channels} channels do not divide into {num_groups} groups"
            )
        self.num_groups, self.eps = num_groups, eps
        self.weight, self.bias = _affine((num_channels,), affine, affine, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, ...) to the same shape."""
        return x.group_norm(
            self.num_groups, self.read(self.weight, x), self.read(self.bias, x), self.eps
        )


class LocalResponseNorm(Module):
    """x / (k + alpha * mean of squares over `size` neighbouring channels) ** beta."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        self.options = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, ...) to the same shape."""
        return x.local_response_norm(*self.options)


# --- running statistics ---------------------------------------------------------------------------


# Running statistics are States, so one graph that trains assigns them and another one reads them.
# At inference what follows from them and from weights is computed once a run, not once a setting of
# the weights: a small kernel over the channels.
class _Running(Module):
    """What batch and instance norms share: channels, an affine map, running statistics.

    `momentum` is the share of the newest statistics; None: every batch counts the same (an instance
    norm then keeps its statistics, and never counts batches, as PyTorch's).
    """

    optional = ("num_batches_tracked",)
    ranks: Sequence[int] = ()
    """The ranks of inputs that it takes."""

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        dtype: Any,
    ) -> None:
        shape = (num_features,)
        self.weight, self.bias = _affine(shape, affine, affine, dtype)
        self.eps, self.momentum = eps, momentum
        tracked = track_running_stats
        self.running_mean = State(shape, float32, 0, "running_mean") if tracked else None
        self.running_var = State(shape, float32, 1, "running_var") if tracked else None
        self.num_batches_tracked = State((), int64, 0, "num_batches_tracked") if tracked else None

    def _checked(self, x: Tensor) -> None:
        if x.ndim not in self.ranks:
            ranks = " or ".join(map(str, self.ranks))
            raise ShapeError(f"{type(self).__name__}: {describe(x)}; it takes {ranks} dims")

    def _track(self, x: Tensor, mean: Tensor, var: Tensor) -> None:
        """Has the run assign the running statistics; mean and var are (channels,)."""
        if self.running_mean is None or self.running_var is None:
            return
        graph, share = x.graph, self._share(x.graph)
        for state, new in ((self.running_mean, mean), (self.running_var, var)):
            old = graph.latest(state)
            # A module called twice in one graph blends twice, as in PyTorch: `latest` is the first
            # one's.
            blended = old * (1 - share) + new.cast(state.dtype) * share
            graph.assign(state, blended.stop_gradient(), again=True)

    def _share(self, graph: Recorder) -> Tensor | float:
        """What the newest statistics count for."""
        return self.momentum or 0.0

    def _own_statistics(self, x: Tensor, dims: Sequence[int]) -> tuple[Tensor, Tensor]:
        """mean and var (n - 0) of x over `dims`, in x's working dtype."""
        work = x.cast(work_dtype(x.dtype))
        return work.mean(dims), work.var(dims, correction=0)


def _unbiased(what: str, var: Tensor, x: Tensor, dims: Sequence[int]) -> Tensor:
    """A variance over `dims` of x, divided by n - 1 for n; PyTorch keeps that one.

    Raises ShapeError where n is 1, or has a run raise DimError.
    """
    n = product_of(x.extents[k] for k in dims)
    if n == const(1):
        raise ShapeError(
            f"{what}: {describe(x)} has one value for each channel, which have no variance; give "
            "it more in training (Batches: drop_last=True), or model.eval()"
        )
    # Where only a run knows the batch, the run is checked.
    x.graph.require(n >= 2, f"{what} in training: two values for each channel")
    size = x.graph.constant(n, var.dtype)
    return var * (size / (size - 1))


class _BatchNorm(_Running):
    """Normalises each channel (dim 1): in training by the batch, else by running statistics."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        dtype: Any = float32,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype)

    def _share(self, graph: Recorder) -> Tensor | float:
        """`momentum`, or 1 / the number of batches so far; they are counted either way."""
        assert self.num_batches_tracked is not None
        count = graph.latest(self.num_batches_tracked) + 1
        graph.assign(self.num_batches_tracked, count, again=True)
        return 1 / count.cast(float32) if self.momentum is None else self.momentum

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        self._checked(x)
        weight, bias = self.read(self.weight, x), self.read(self.bias, x)
        if not self.training and self.running_mean is not None and self.running_var is not None:
            mean, var = x.graph.read(self.running_mean), x.graph.read(self.running_var)
            return batch_norm(x, mean, var, weight, bias, eps=self.eps)
        # Without running statistics the batch's own serve in eval too, as in PyTorch.
        dims = (0, *range(2, x.ndim))
        mean, var = self._own_statistics(x, dims)
        if self.training:
            self._track(x, mean, _unbiased(type(self).__name__, var, x, dims))
        return batch_norm(x, mean, var, weight, bias, eps=self.eps)


class BatchNorm1d(_BatchNorm):
    """Batch norm of (batch, channels) or (batch, channels, length). arXiv 1502.03167."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch norm of (batch, channels, height, width). Ioffe and Szegedy, arXiv 1502.03167."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch norm of (batch, channels, depth, height, width). arXiv 1502.03167."""

    ranks = (5,)


class _InstanceNorm(_Running):
    """Normalises each channel of each sample; by running statistics where it tracks them, in eval.

    The batch may be missing. Ulyanov et al., arXiv 1607.08022.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        dtype: Any = float32,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        self._checked(x)
        if x.ndim == self.ranks[0]:
            batched: Tensor = self.forward(x.unsqueeze(0))
            return batched.squeeze(0)
        weight, bias = self.read(self.weight, x), self.read(self.bias, x)
        if not self.training and self.running_mean is not None and self.running_var is not None:
            mean, var = x.graph.read(self.running_mean), x.graph.read(self.running_var)
            return batch_norm(x, mean, var, weight, bias, eps=self.eps)
        if self.training and self.running_mean is not None:
            dims = tuple(range(2, x.ndim))
            mean, var = self._own_statistics(x, dims)
            # Each sample has statistics of its own; kept is their mean, as in PyTorch.
            self._track(x, mean.mean(0), _unbiased(type(self).__name__, var, x, dims).mean(0))
        return x.instance_norm(weight=weight, bias=bias, eps=self.eps)


class InstanceNorm1d(_InstanceNorm):
    """Instance norm of ([batch,] channels, length)."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance norm of ([batch,] channels, height, width)."""

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance norm of ([batch,] channels, depth, height, width)."""

    ranks = (4, 5)
