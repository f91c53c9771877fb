"""OLMoE: experts, and norms over queries and keys. Muennighoff et al., arXiv 2409.02060."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, later, layers_of
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    bias = fields.flag("attention_bias", False)
    return decoder(
        fields,
        later(layers_of(fields), 0, experts=True),
        norm_eps=fields.number("rms_norm_eps", 1e-5, most=1),
        qk_norm="projection",
        projection_limit=fields.number_or_none("clip_qkv"),
        attention_bias=bias,
        output_bias=bias,
        experts=ExpertsConfig(
            fields.integer("num_experts", 64),
            fields.integer("num_experts_per_tok", 8),
            fields.integer("intermediate_size"),
            fields.flag("norm_topk_prob", False),
        ),
    )


OLMOE = Architecture(config)
