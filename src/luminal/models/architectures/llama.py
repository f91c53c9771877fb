"""Llama 2, 3 and 3.x. Touvron et al., arXiv 2307.09288; arXiv 2407.21783."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layers_of
from luminal.models.decoder_config import DecoderConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    bias = fields.flag("attention_bias", False)
    return decoder(
        fields,
        layers_of(fields),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=fields.flag("mlp_bias", False),
    )


LLAMA = Architecture(config)
