"""Llama from its sizes, to be trained or loaded. Touvron et al., arXiv 2302.13971."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luminal.base.dtypes import float32
from luminal.base.records import dataclass
from luminal.models.decoder import Decoder
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Rotary


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """The sizes of a Llama, under Hugging Face's names."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    tie_word_embeddings: bool = False


class Llama(Decoder):
    """The Decoder that a LlamaConfig describes; its parts have Hugging Face's names."""

    def __init__(self, config: LlamaConfig, dtype: Any = float32) -> None:
        rotary = Rotary(config.rope_theta, config.rope_scaling)
        decoder_config = DecoderConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            layers=(LayerConfig(rotary=rotary),) * config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.max_position_embeddings,
            norm_eps=config.rms_norm_eps,
            tie_word_embeddings=config.tie_word_embeddings,
        )
        super().__init__(decoder_config, dtype)
        self.config = config
