"""T5: text to text. Raffel et al., arXiv 1910.10683."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luminal.base.dtypes import float32, promote
from luminal.base.records import dataclass
from luminal.frontend.handle import Extent
from luminal.frontend.tensor import Tensor
from luminal.models.encoder import within
from luminal.models.encoder_decoder import EncoderDecoder
from luminal.models.transformer import Transformer, TransformerConfig
from luminal.nn import Embedding, KVCache, Linear, RelativeBias, causal_mask
from luminal.nn.masked_attention import KeysValues


@dataclass(frozen=True, slots=True)
class T5Config:
    """The sizes of both parts; `longest` is that of inputs and of texts. `scaled`: what is read out
    is divided by the root of the hidden size.
    """

    vocab_size: int
    longest: int
    buckets: int
    farthest: int
    scaled: bool
    encoder: TransformerConfig
    decoder: TransformerConfig


class T5(EncoderDecoder):
    """An encoder and a decoder without positions but for biases by distance."""

    def __init__(self, config: T5Config, dtype: Any = float32) -> None:
        self.config = config
        self.longest_input = self.longest_text = config.longest
        hidden, heads = config.encoder.hidden_size, config.encoder.num_attention_heads
        distances = config.buckets, heads, config.farthest
        self.embed_tokens = Embedding(config.vocab_size, hidden, dtype=dtype)
        self.encoder_bias = RelativeBias(*distances, True, dtype)
        self.encoder = Transformer(config.encoder, dtype)
        self.decoder_bias = RelativeBias(*distances, False, dtype)
        self.decoder = Transformer(config.decoder, dtype)
        self.lm_head = Linear(hidden, config.vocab_size, False, dtype)

    def _embedded(self, ids: Tensor) -> Tensor:
        x: Tensor = self.embed_tokens(ids)
        return x.cast(promote(x.dtype, float32))  # 16-bit weights, 32-bit values

    def encode(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Ids ([batch,] k) to ([batch,] k, hidden)."""
        count = x.extents[-1]
        visible = None if lengths is None else within(x, lengths).unsqueeze((1, 2))
        bias = self.encoder_bias(x.graph, count, count)
        encoded: Tensor = self.encoder(self._embedded(x), visible, bias)
        return encoded

    def decode(
        self,
        ids: Tensor,
        memories: Sequence[KeysValues],
        memory_visible: Tensor | None = None,
        caches: Sequence[KVCache] | None = None,
        past: Extent = 0,
    ) -> Tensor:
        """The logits of the ids, as EncoderDecoder asks for them."""
        graph, count = ids.graph, ids.extents[-1]
        keys = graph.extent(past) + count
        visible = causal_mask(graph, count, keys, past)
        bias = self.decoder_bias(graph, count, keys, past)
        x = self._embedded(ids)
        x = self.decoder(x, visible, bias, memories, memory_visible, caches, past)
        # The output matrix is the embedding, whose elements are of size 1 and not of 1 /
        # sqrt(hidden).
        if self.config.scaled:
            x = x * self.config.decoder.hidden_size**-0.5
        logits: Tensor = self.lm_head(x)
        return logits
