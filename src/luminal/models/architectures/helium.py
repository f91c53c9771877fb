"""Helium: a Llama that turns neighbouring features. Kyutai 2025."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layers_of, rotary_of
from luminal.models.decoder_config import DecoderConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    return decoder(
        fields,
        layers_of(fields, rotary=rotary_of(fields, theta=1e5, interleaved=True)),
        norm_eps=fields.number("rms_norm_eps", 1e-8, most=1),
        attention_bias=fields.flag("attention_bias", False),
        mlp_bias=fields.flag("mlp_bias", False),
    )


HELIUM = Architecture(config)
