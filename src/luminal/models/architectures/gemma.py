"""Gemma 1, 2 and 3 (text). arXiv 2403.08295, 2408.00118, 2503.19786."""

from __future__ import annotations

import math
from typing import Any

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import (
    decoder,
    layers_of,
    layers_of_two_rotaries,
    refuse,
    windows_of,
)
from luminal.models.architectures.text_part import text_part
from luminal.models.decoder_config import DecoderConfig, LayerConfig

_GELU = "gelu_pytorch_tanh"
_CAP = "final_logit_softcapping"


def _decoder(fields: Fields, layers: tuple[LayerConfig, ...], **changes: Any) -> DecoderConfig:
    """What the three share."""
    refuse(fields, use_bidirectional_attention=False)
    bias = fields.flag("attention_bias", False)
    return decoder(
        fields,
        layers,
        norm="zero_centered_rms",
        embedding_scale=math.sqrt(fields.integer("hidden_size")),
        attention_bias=bias,
        output_bias=bias,
        tie_word_embeddings=fields.flag("tie_word_embeddings", True),
        **changes,
    )


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json` of Gemma 1, whose `hidden_act` "gelu" means that by tanh."""
    activation = fields.text("hidden_act", _GELU)
    activation = _GELU if activation == "gelu" else activation
    return _decoder(fields, layers_of(fields), activation=activation)


def _later(fields: Fields, layers: tuple[LayerConfig, ...], **changes: Any) -> DecoderConfig:
    """Gemma 2 and 3: norms before and after, a soft-cap, a scale of queries of its own."""
    return _decoder(
        fields,
        layers,
        activation=fields.text("hidden_activation", _GELU),
        norm_place="both",
        query_scale=fields.number("query_pre_attn_scalar", 256) ** -0.5,
        **changes,
    )


def config2(fields: Fields) -> DecoderConfig:
    """Of Gemma 2: layers 0, 2, ... slide, and scores have a soft-cap."""
    return _later(
        fields,
        layers_of(fields, windows_of(fields, lambda layer: layer % 2 == 0)),
        attention_softcap=fields.number_or_none("attn_logit_softcapping", 50),
        logit_softcap=fields.number_or_none(_CAP, 30),
    )


def config3(fields: Fields) -> DecoderConfig:
    """Of Gemma 3: of six layers five slide, and turn by angles of their own."""
    pattern = fields.integer("sliding_window_pattern", 6)
    near = Fields({"rope_theta": fields.number("rope_local_base_freq", 1e4)}, fields.path)
    layers = layers_of_two_rotaries(fields, lambda layer: (layer + 1) % pattern != 0, near, 1e6)
    return _later(fields, layers, qk_norm="head", logit_softcap=fields.number_or_none(_CAP))


_NAMES = {
    ".post_attention_layernorm.": ".attention_output_norm.",
    ".pre_feedforward_layernorm.": ".post_attention_layernorm.",
    ".post_feedforward_layernorm.": ".mlp_output_norm.",
}

GEMMA = Architecture(config)
GEMMA2 = Architecture(config2, _NAMES)
GEMMA3 = Architecture(config3, _NAMES)
GEMMA3_TEXT = text_part(
    GEMMA3, vocab_size=262208, num_attention_heads=8, num_key_value_heads=4, head_dim=256
)
