"""Mistral, a Llama with a sliding window, Ministral, Ministral 3. arXiv 2310.06825, 2601.08584."""

from __future__ import annotations

from dataclasses import replace

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import (
    decoder,
    later,
    layers_of,
    original_positions,
    rope_section,
    rotary_of,
    same_windows,
    windows_of,
)
from luminal.models.architectures.text_part import text_part
from luminal.models.decoder_config import DecoderConfig
from luminal.nn.attention import Temperature

_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
"""Where a file of Ministral 3 says nothing of positions."""


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`; Ministral 3 has a temperature of queries among its rotary parameters, and
    other defaults: its `model_type` tells, also as a part of Mistral 3.
    """
    third = fields.values.get("model_type") == "ministral3"
    rope = rope_section(fields)
    if third and not rope:
        rope = replace(fields, values=_YARN, what="rope_parameters")
    layers = layers_of(fields, same_windows(fields), rotary_of(fields, rope))
    scale = rope.number_or_none("llama_4_scaling_beta")
    if scale is not None:
        length = original_positions(fields, rope)
        layers = later(layers, 0, temperature=Temperature(scale, length))
    eps = fields.number("rms_norm_eps", 1e-5 if third else 1e-6, most=1)
    return decoder(fields, layers, norm_eps=eps)


def config_of_kinds(fields: Fields) -> DecoderConfig:
    """Of Ministral, some of whose layers may see all; by default none does."""
    windowed = fields.values.get("sliding_window") is not None
    return decoder(fields, layers_of(fields, windows_of(fields, lambda layer: windowed)))


MISTRAL = Architecture(config)
MINISTRAL = Architecture(config_of_kinds)
MISTRAL_TEXT = text_part(MISTRAL)
