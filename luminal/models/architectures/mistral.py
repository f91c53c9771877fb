"""Mistral, a Llama with a sliding window, Ministral, Ministral 3. arXiv 2310.06825, 2601.08584."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import (
    decoder,
    later,
    layers_of,
    original_positions,
    rope_section,
    same_windows,
    windows_of,
)
from luminal.models.decoder_config import DecoderConfig
from luminal.nn.attention import Temperature


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`; Ministral 3 has a temperature of queries among its rotary parameters."""
    layers = layers_of(fields, same_windows(fields))
    rope = rope_section(fields)
    scale = rope.number_or_none("llama_4_scaling_beta")
    if scale is not None:
        length = original_positions(fields, rope)
        layers = later(layers, 0, temperature=Temperature(scale, length))
    return decoder(fields, layers)


def config_of_kinds(fields: Fields) -> DecoderConfig:
    """Of Ministral, some of whose layers may see all; by default none does."""
    windowed = fields.values.get("sliding_window") is not None
    return decoder(fields, layers_of(fields, windows_of(fields, lambda layer: windowed)))


MISTRAL = Architecture(config)
MINISTRAL = Architecture(config_of_kinds)
