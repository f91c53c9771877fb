"""Whisper: log-mel frames to text. Radford et al., arXiv 2212.04356."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luminal.base.dtypes import float32, promote
from luminal.base.records import dataclass
from luminal.frontend.handle import Extent
from luminal.frontend.tensor import Tensor
from luminal.models.encoder_decoder import EncoderDecoder
from luminal.models.transformer import Transformer, TransformerConfig
from luminal.nn import Conv1d, Embedding, KVCache, causal_mask
from luminal.nn.masked_attention import KeysValues

STRIDE = 2  # frames to a position of the memory


@dataclass(frozen=True, slots=True)
class WhisperConfig:
    """The sizes of both parts; a window has `STRIDE * max_source_positions` frames of
    `num_mel_bins`.
    """

    vocab_size: int
    num_mel_bins: int
    max_source_positions: int
    max_target_positions: int
    encoder: TransformerConfig
    decoder: TransformerConfig


class Whisper(EncoderDecoder):
    """Two convolutions and an encoder; a decoder whose tokens are read out as they are embedded."""

    def __init__(self, config: WhisperConfig, dtype: Any = float32) -> None:
        self.config = config
        self.longest_input, self.longest_text = (
            config.max_source_positions,
            config.max_target_positions,
        )
        hidden = config.encoder.hidden_size
        self.conv1 = Conv1d(config.num_mel_bins, hidden, 3, padding=1, dtype=dtype)
        self.conv2 = Conv1d(hidden, hidden, 3, stride=STRIDE, padding=1, dtype=dtype)
        self.embed_frames = Embedding(self.longest_input, hidden, dtype=dtype)
        self.encoder = Transformer(config.encoder, dtype)
        self.embed_tokens = Embedding(config.vocab_size, hidden, dtype=dtype)
        self.embed_positions = Embedding(self.longest_text, hidden, dtype=dtype)
        self.decoder = Transformer(config.decoder, dtype)

    def encode(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Windows ([batch,] mels, frames) to ([batch,] max_source_positions, hidden).

        All of a window is heard, silence, too: `lengths` change nothing.
        """
        x = self.conv2(self.conv1(x).gelu()).gelu().mT
        x = x + self.read(self.embed_frames.weight, x)
        encoded: Tensor = self.encoder(x.cast(promote(x.dtype, float32)))
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
        x = self.embed_tokens(ids)
        x = x.cast(promote(x.dtype, float32))  # 16-bit weights, 32-bit values
        x = x + self.embed_positions(graph.arange(count) + graph.constant(past))
        visible = causal_mask(graph, count, graph.extent(past) + count, past)
        x = self.decoder(x, visible, None, memories, memory_visible, caches, past)
        logits: Tensor = x @ self.read(self.embed_tokens.weight, x).mT
        return logits
