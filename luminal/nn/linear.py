"""Layers that are one matrix: Linear and Embedding."""

from __future__ import annotations

from typing import Any

from luminal.dtypes import float32
from luminal.frontend.tensor import Tensor
from luminal.hlir.state import Parameter
from luminal.nn.module import Module


class Linear(Module):
    """`x @ weight.T + bias` along the last dim; weight is (out_features, in_features)."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, dtype: Any = float32
    ) -> None:
        self.weight = Parameter((out_features, in_features), dtype)
        self.bias = Parameter((out_features,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        y = x @ self.read(self.weight, x).mT
        return y if self.bias is None else y + self.read(self.bias, x)


class Embedding(Module):
    """Rows of `weight`, (num_embeddings, embedding_dim), by their numbers."""

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: Any = float32) -> None:
        self.weight = Parameter((num_embeddings, embedding_dim), dtype)

    def forward(self, ids: Tensor) -> Tensor:
        """(...) integers to (..., embedding_dim)."""
        return ids.embedding(self.read(self.weight, ids))
