"""Seed-OSS: a Llama whose biases are said one by one. ByteDance 2025."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layers_of
from luminal.models.decoder_config import DecoderConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    return decoder(
        fields,
        layers_of(fields),
        attention_bias=fields.flag("attention_bias", True),
        output_bias=fields.flag("attention_out_bias", False),
        mlp_bias=fields.flag("mlp_bias", False),
    )


SEED_OSS = Architecture(config)
