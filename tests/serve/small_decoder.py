"""A small decoder with random weights."""

from __future__ import annotations

import luminal as lm
from luminal.models.decoder import Decoder
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Rotary

CONFIG = DecoderConfig(
    vocab_size=50,
    hidden_size=32,
    intermediate_size=48,
    layers=tuple(LayerConfig(window, Rotary()) for window in (None, 5)),
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=128,
)


def decoder(config: DecoderConfig = CONFIG) -> Decoder:
    """With random weights."""
    lm.manual_seed(3)
    return Decoder(config)
