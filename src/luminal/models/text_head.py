"""What reads a text encoder's vectors: labels of texts, of their tokens, or where an answer is."""

from __future__ import annotations

from typing import Any

from luminal.base.dtypes import float32, int32
from luminal.base.records import dataclass
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.models.encoder import Encoder, within
from luminal.nn import LayerNorm, Linear, Module
from luminal.nn.feed_forward import activation_of


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """`labels`: outputs. `pool`: which vectors of a text are read, the "first" or "last" token's,
    the "mean", or with "none" each. `activation`: that of a layer before the last one, which there
    is none of by default; `norm_eps`: of a norm after that. `bias`, `norm_bias`, `out_bias`: of the
    three.
    """

    hidden_size: int
    labels: int
    pool: str = "none"
    activation: str | None = None
    norm_eps: float | None = None
    bias: bool = True
    norm_bias: bool = True
    out_bias: bool = True


class TextHead(Module):
    """Vectors of tokens to logits of labels."""

    def __init__(self, config: HeadConfig, dtype: Any = float32) -> None:
        self.config = config
        hidden, self.activation = config.hidden_size, config.activation
        self.dense = Linear(hidden, hidden, config.bias, dtype) if config.activation else None
        eps = config.norm_eps
        self.norm = (
            None if eps is None else LayerNorm(hidden, eps, bias=config.norm_bias, dtype=dtype)
        )
        self.out = Linear(hidden, config.labels, config.out_bias, dtype)

    def forward(self, hidden: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """(batch, s, hidden) to (batch, labels), or (batch, s, labels) of each token."""
        x = self._pooled(hidden, ids, lengths)
        if self.dense is not None and self.activation is not None:
            x = activation_of(self.activation)(self.dense(x))
        if self.norm is not None:
            x = self.norm(x)
        logits: Tensor = self.out(x)
        return logits

    def _pooled(self, hidden: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        if self.config.pool == "first":
            return hidden[:, 0]
        if self.config.pool == "none":
            return hidden
        if self.config.pool == "mean":
            mine = where(within(ids, lengths).unsqueeze(-1), hidden, 0)
            return mine.sum(1) / lengths.unsqueeze(-1).cast(hidden.dtype)
        # The last of a text's own tokens: rows are padded behind it.
        last = ids.graph.arange(ids.extents[1]) == lengths.unsqueeze(-1).cast(int32) - 1
        return where(last.unsqueeze(-1), hidden, 0).sum(1)


class HeadedEncoder(Module):
    """An encoder and its head."""

    def __init__(self, encoder: Encoder, head: HeadConfig, dtype: Any = float32) -> None:
        self.encoder, self.head = encoder, TextHead(head, dtype)
        self.longest = encoder.config.max_position_embeddings
        self.vocab_size, self.segments = encoder.config.vocab_size, encoder.config.segments

    def forward(self, ids: Tensor, lengths: Tensor, segments: Tensor) -> Tensor:
        """(batch, s) ids, and of which text of a pair each is, to logits; see TextHead."""
        several = segments if self.segments > 1 else None
        logits: Tensor = self.head(self.encoder(ids, lengths, several), ids, lengths)
        return logits


class HeadedDecoder(Module):
    """A causal decoder whose last token's vector is read."""

    def __init__(self, decoder: Any, head: HeadConfig, longest: int, dtype: Any = float32) -> None:
        self.model, self.head, self.longest = decoder, TextHead(head, dtype), longest
        self.vocab_size = decoder.embed_tokens.weight.shape[0]
        self.segments = 0

    def forward(self, ids: Tensor, lengths: Tensor, segments: Tensor) -> Tensor:
        """(batch, s) ids, padded on the right, to logits (batch, labels)."""
        del segments  # a decoder has no such embedding
        logits: Tensor = self.head(self.model(ids), ids, lengths)
        return logits
