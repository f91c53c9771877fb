"""OLMo: a Llama whose norms have no weights. Groeneveld et al., arXiv 2402.00838."""

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
        norm="layer_without_weight",
        norm_eps=1e-5,
        attention_bias=bias,
        output_bias=bias,
        projection_limit=fields.number_or_none("clip_qkv"),
    )


OLMO = Architecture(config)
