"""Layers that are one matrix, or one for every output: Identity, Linear, Bilinear."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from luminal.base.dtypes import float32
from luminal.base.errors import ShapeError
from luminal.frontend.matrices.products import bilinear
from luminal.frontend.tensor import Tensor
from luminal.nn import init
from luminal.nn.init import Draw
from luminal.nn.misuse import unfit
from luminal.nn.module import Module


def near_zero(fan_in: int) -> Draw:
    """PyTorch's default of weights and biases: uniform within 1 / sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return partial(init.uniform, a=-bound, b=bound)


class Identity(Module):
    """Gives its input back; arguments are accepted and not used."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def forward(self, x: Any) -> Any:
        """x as it is."""
        return x


class Linear(Module):
    """`x @ weight.T + bias` along the last dim; weight is (out_features, in_features)."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, dtype: Any = float32
    ) -> None:
        draw = near_zero(in_features)
        self.weight = init.parameter((out_features, in_features), draw, dtype)
        self.bias = init.parameter((out_features,), draw, dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features) times the weight: (..., out_features)."""
        # The cast keeps the product's dtype: a bias that is wider must not widen all that follows.
        try:
            y = self.product(x, self.weight)
        except ShapeError:
            raise unfit(self, x, tuple(self.weight.shape[1:]), "in_features") from None
        return y if self.bias is None else (y + self.read(self.bias, x)).cast(y.dtype)


class Bilinear(Module):
    """`x1 @ weight[k] @ x2 + bias[k]` for each output k; weight is (out, in1, in2)."""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        dtype: Any = float32,
    ) -> None:
        draw = near_zero(in1_features)
        self.weight = init.parameter((out_features, in1_features, in2_features), draw, dtype)
        self.bias = init.parameter((out_features,), draw, dtype) if bias else None

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """(..., in1) and (..., in2) to (..., out)."""
        return bilinear(x1, x2, self.read(self.weight, x1), self.read(self.bias, x1))
