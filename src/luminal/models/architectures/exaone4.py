"""EXAONE 4: norms after both parts; layers without a window know no positions. arXiv 2507.11407."""

from __future__ import annotations

from dataclasses import replace

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layers_of, windows_of
from luminal.models.decoder_config import DecoderConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`; without a window at all every layer is rotary."""
    hybrid = fields.values.get("sliding_window") is not None
    pattern = fields.integer("sliding_window_pattern", 4) if hybrid else 0
    layers = layers_of(
        fields, windows_of(fields, lambda layer: hybrid and (layer + 1) % pattern != 0)
    )
    if hybrid:
        layers = tuple(
            layer if layer.window is not None else replace(layer, rotary=None) for layer in layers
        )
    return decoder(
        fields,
        layers,
        norm_eps=fields.number("rms_norm_eps", 1e-5, most=1),
        norm_place="after",
        qk_norm="head",
    )


EXAONE4 = Architecture(
    config,
    {
        ".post_attention_layernorm.": ".attention_output_norm.",
        ".post_feedforward_layernorm.": ".mlp_output_norm.",
    },
)
