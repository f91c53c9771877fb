"""Command R and R7B: parallel layers with one norm, whose logits are scaled. Cohere 2024.

R7B: windows; layers without one know no positions. arXiv 2504.00698.
"""

from __future__ import annotations

from typing import Any

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layers_of, refuse, rotary_of, windows_of
from luminal.models.decoder_config import DecoderConfig, LayerConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json` of Command R."""
    layers = layers_of(fields, rotary=rotary_of(fields, theta=5e5, interleaved=True))
    qk_norm = "unlike_heads" if fields.flag("use_qk_norm", False) else None
    return _decoder(fields, layers, qk_norm=qk_norm)


def config2(fields: Fields) -> DecoderConfig:
    """Of Command R7B: of four layers three slide."""
    refuse(fields, use_qk_norm=False)
    pattern = fields.integer("sliding_window_pattern", 4)
    layers = layers_of(
        fields,
        windows_of(fields, lambda layer: (layer + 1) % pattern != 0),
        rotary_of(fields, interleaved=True),
    )
    return _decoder(
        fields,
        tuple(layer if layer.window is not None else LayerConfig() for layer in layers),
    )


def _decoder(fields: Fields, layers: tuple[LayerConfig, ...], **changes: Any) -> DecoderConfig:
    bias = fields.flag("attention_bias", False)
    return decoder(
        fields,
        layers,
        norm="layer_without_bias",
        norm_eps=fields.number("layer_norm_eps", 1e-5, most=1),
        parallel="shared",
        attention_bias=bias,
        output_bias=bias,
        logit_scale=fields.number("logit_scale", 0.0625),
        tie_word_embeddings=fields.flag("tie_word_embeddings", True),
        **changes,
    )


COHERE = Architecture(config)
COHERE2 = Architecture(config2)
