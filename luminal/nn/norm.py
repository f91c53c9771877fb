"""Normalisation layers; batch norms as at inference, with their running statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luminal.dtypes import float32
from luminal.frontend.tensor import Tensor
from luminal.hlir.state import Parameter
from luminal.nn.module import Module


class RMSNorm(Module):
    """`x / sqrt(mean(x * x) + eps) * weight` over the last dim."""

    def __init__(self, features: int, eps: float = 1e-6, dtype: Any = float32) -> None:
        self.weight = Parameter((features,), dtype)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        return x.rms_norm(-1, self.read(self.weight, x), self.eps)


class LayerNorm(Module):
    """`(x - mean) / sqrt(var + eps) * weight + bias` over the last dims."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: Any = float32,
    ) -> None:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.dims = tuple(range(-len(shape), 0))
        self.weight = Parameter(shape, dtype) if elementwise_affine else None
        self.bias = Parameter(shape, dtype) if elementwise_affine and bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        weight = None if self.weight is None else self.read(self.weight, x)
        bias = None if self.bias is None else self.read(self.bias, x)
        return x.layer_norm(self.dims, weight, bias, self.eps)


class BatchNorm2d(Module):
    """Normalises each channel (dim 1) of (batch, channels, h, w) by its running statistics."""

    ignored = ("num_batches_tracked",)

    def __init__(
        self, num_features: int, eps: float = 1e-5, affine: bool = True, dtype: Any = float32
    ) -> None:
        shape = (num_features,)
        self.weight = Parameter(shape, dtype) if affine else None
        self.bias = Parameter(shape, dtype) if affine else None
        self.running_mean = Parameter(shape, dtype)
        self.running_var = Parameter(shape, dtype)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        mean, var = self.read(self.running_mean, x), self.read(self.running_var, x)
        weight = None if self.weight is None else self.read(self.weight, x)
        bias = None if self.bias is None else self.read(self.bias, x)
        return x.batch_norm(mean, var, weight, bias, self.eps)


class BatchNorm1d(BatchNorm2d):
    """Normalises each channel (dim 1) of (batch, channels) or (batch, channels, length)."""
