"""Text encoders: every token of a text sees all of it. Devlin et al., arXiv 1810.04805."""

from __future__ import annotations

from typing import Any

from luminal.base.dtypes import float32, int32, promote
from luminal.base.records import dataclass
from luminal.frontend.tensor import Tensor
from luminal.models.transformer import Transformer, TransformerConfig
from luminal.nn import Embedding, Module


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Embeddings, with a norm after them, below `layers`.

    `segments`: the number of these types, 0 where the model has none. `learned`: positions have
    embeddings. `placeless`: a token that, wherever it stands, takes up no position: others count as
    if it were not there, and it has the first row of the table, before those of positions.
    """

    vocab_size: int
    max_position_embeddings: int
    segments: int
    layers: TransformerConfig
    learned: bool = True
    placeless: int | None = None


class Encoder(Module):
    """Token ids to a vector for each of them."""

    def __init__(self, config: EncoderConfig, dtype: Any = float32) -> None:
        self.config = config
        hidden = config.layers.hidden_size
        positions = config.max_position_embeddings + (config.placeless is not None)
        self.embed_tokens = Embedding(config.vocab_size, hidden, dtype=dtype)
        learned = config.learned
        self.embed_positions = Embedding(positions, hidden, dtype=dtype) if learned else None
        segments = config.segments
        self.embed_segments = Embedding(segments, hidden, dtype=dtype) if segments else None
        self.embed_norm = config.layers.make_norm(dtype)
        self.transformer = Transformer(config.layers, dtype)

    def forward(
        self, ids: Tensor, lengths: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """(batch, s) ids to (batch, s, hidden), in float32 (float64 for float64 weights).

        `lengths` (batch,): only so many tokens of each text are its own, all by default.
        `segments` (batch, s): the segment type of each token, the first by default.
        """
        x = self.embed_tokens(ids)
        x = x.cast(promote(x.dtype, float32))  # 16-bit weights, 32-bit values
        if self.embed_positions is not None:
            x = x + self.embed_positions(self._positions(ids))
        if self.embed_segments is not None:
            if segments is None:  # one row of the table is added to every token
                x = x + self.read(self.embed_segments.weight, x)[0]
            else:
                x = x + self.embed_segments(segments)
        visible = None if lengths is None else within(ids, lengths).unsqueeze((1, 2))
        hidden: Tensor = self.transformer(self.embed_norm(x), visible)
        return hidden

    def _positions(self, ids: Tensor) -> Tensor:
        """Rows of the table, (s,), or (batch, s) where they depend on the tokens."""
        placeless = self.config.placeless
        if placeless is None:
            return ids.graph.arange(ids.extents[1])
        # A running count, so a placeless token inside a text shifts nothing; its own position is 0.
        placed = (ids != placeless).cast(int32)
        return placed.cumsum(1) * placed


def within(ids: Tensor, lengths: Tensor) -> Tensor:
    """(batch, s) bools: is this one of the first `lengths` (batch,) of its text?"""
    return ids.graph.arange(ids.extents[1]) < lengths.unsqueeze(-1)
