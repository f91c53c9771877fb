"""Tables of vectors looked up by number."""

from __future__ import annotations

from functools import partial
from typing import Any

from luminal.base.dtypes import float32
from luminal.base.errors import InputError
from luminal.frontend.handle import Array
from luminal.frontend.movement.embedding import embedding_bag
from luminal.frontend.tensor import Tensor
from luminal.nn import init
from luminal.nn.init import Draw, Rng, Shape
from luminal.nn.module import Module


def _rows(what: str, count: int, padding_idx: int | None) -> tuple[Draw, int | None]:
    """PyTorch's default, normal with a zero row at `padding_idx`, and that row counted from 0."""
    if padding_idx is None:
        return init.normal, None
    if not -count <= padding_idx < count:
        raise InputError(f"{what}: padding_idx {padding_idx} is not among {count} rows")
    row = padding_idx % count
    return partial(_but_one, row), row


def _but_one(row: int, rng: Rng, shape: Shape) -> Array:
    table = init.normal(rng, shape)
    table[row] = 0
    return table


class Embedding(Module):
    """Rows of `weight`, (num_embeddings, embedding_dim), by their numbers.

    `padding_idx` names a row that starts as zeros and gets no gradient.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        dtype: Any = float32,
    ) -> None:
        draw, self.padding_idx = _rows("Embedding", num_embeddings, padding_idx)
        self.weight = init.parameter((num_embeddings, embedding_dim), draw, dtype)

    def forward(self, ids: Tensor) -> Tensor:
        """The rows of the table at `ids` (...), integers: (..., embedding_dim)."""
        return ids.embedding(self.read(self.weight, ids), self.padding_idx)


class EmbeddingBag(Module):
    """The sum, mean or maximum of each bag's rows of `weight`; rows at `padding_idx` do not count.

    `include_last_offset`: the last offset is the end of the last bag, not the start of another.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        mode: str = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        dtype: Any = float32,
    ) -> None:
        draw, self.padding_idx = _rows("EmbeddingBag", num_embeddings, padding_idx)
        self.weight = init.parameter((num_embeddings, embedding_dim), draw, dtype)
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(
        self,
        ids: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """ids (bags, length), or (count,) with the bags' starts in `offsets`, to (bags, width)."""
        return embedding_bag(
            ids,
            self.read(self.weight, ids),
            offsets,
            self.mode,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )
