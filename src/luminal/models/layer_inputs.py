"""What each layer of a decoder reads of the ids by itself: the per-layer embeddings of Gemma 4."""

from __future__ import annotations

import math
from typing import Any

from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.models.decoder_config import DecoderConfig
from luminal.nn import Embedding, Linear, Module, RMSNorm


class LayerInputs(Module):
    """The mean of an embedding of the ids and a projection of their hidden states, times sqrt(2).

    Names as in Hugging Face's Gemma 3n and 4.
    """

    def __init__(self, config: DecoderConfig, dtype: Any) -> None:
        assert config.layer_inputs is not None
        self.vocabulary, self.size = config.layer_inputs
        self.count = config.num_hidden_layers
        self.scale = config.hidden_size**-0.5
        # Tokens behind the table's end, which stand for what is no text, read its first row.
        self.is_shorter = self.vocabulary < config.vocab_size
        width = self.count * self.size
        self.embed_tokens_per_layer = Embedding(self.vocabulary, width, dtype=dtype)
        self.per_layer_model_projection = Linear(config.hidden_size, width, False, dtype)
        self.per_layer_projection_norm = RMSNorm(self.size, config.norm_eps, dtype=dtype)

    def forward(self, ids: Tensor, x: Tensor) -> list[Tensor]:
        """ids (..., s) and their states (..., s, hidden) to (..., s, size) for each layer."""
        sizes = self.count, self.size
        if self.is_shorter:
            ids = where(ids < self.vocabulary, ids, 0)
        projected = (self.per_layer_model_projection(x) * self.scale).unflatten(-1, sizes)
        embedded = self.embed_tokens_per_layer(ids).cast(x.dtype).unflatten(-1, sizes)
        normed = self.per_layer_projection_norm(projected)
        # Each of the two has variance 1, so their sum over the root of two has it as well.
        both = (normed + embedded * math.sqrt(self.size)) * math.sqrt(0.5)
        return [both[..., number, :] for number in range(self.count)]
