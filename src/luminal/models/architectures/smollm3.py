"""SmolLM3: a Llama with some layers that know no positions. Yang et al., arXiv 2501.18795."""

from __future__ import annotations

from dataclasses import replace

from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import (
    decoder,
    layer_count,
    layers_of,
    rotary_of,
    windows_of,
)
from luminal.models.decoder_config import DecoderConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`; `no_rope_layers` has a 1 for every layer that is rotary."""
    count = layer_count(fields)
    interval = fields.integer("no_rope_layer_interval", 4)
    default = [int((number + 1) % interval != 0) for number in range(count)]
    rotary = fields.listed("no_rope_layers", int, default)
    if len(rotary) != count:
        raise LoadError(f"{fields.path}: no_rope_layers has {len(rotary)} of {count} layers")
    windowed = fields.flag("use_sliding_window", False)
    windowed = windowed and fields.values.get("sliding_window") is not None
    windows = windows_of(fields, lambda number: windowed and not rotary[number])
    layers = layers_of(fields, windows, rotary_of(fields, theta=2e6))
    bias = fields.flag("attention_bias", False)
    return decoder(
        fields,
        tuple(
            layer if turned else replace(layer, rotary=None)
            for layer, turned in zip(layers, rotary, strict=True)
        ),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=fields.flag("mlp_bias", False),
        tie_word_embeddings=fields.flag("tie_word_embeddings", True),
    )


SMOLLM3 = Architecture(config)
