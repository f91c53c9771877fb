"""OLMo 2: norms after attention and feed-forward, and over queries and keys. arXiv 2501.00656."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layers_of
from luminal.models.decoder import DecoderConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    bias = fields.flag("attention_bias", False)
    return decoder(
        fields,
        layers_of(fields),
        norm_eps=fields.number("rms_norm_eps", 1e-5, most=1),
        norm_place="after",
        qk_norm="projection",
        attention_bias=bias,
        output_bias=bias,
    )


OLMO2 = Architecture(
    config,
    {
        ".post_attention_layernorm.": ".attention_output_norm.",
        ".post_feedforward_layernorm.": ".mlp_output_norm.",
    },
)
