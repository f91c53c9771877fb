"""Arcee's AFM: a Llama without gates, of squared relus. Arcee AI 2025."""

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
        activation=fields.text("hidden_act", "relu2"),
        gated=False,
        norm_eps=fields.number("rms_norm_eps", 1e-5, most=1),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=fields.flag("mlp_bias", False),
    )


ARCEE = Architecture(config)
