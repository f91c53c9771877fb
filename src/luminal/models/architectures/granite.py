"""Granite 3: a Llama with four scales, and its experts. IBM, arXiv 2405.04324."""

from __future__ import annotations

from typing import Any

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, later, layers_of
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    return decoder(
        fields, layers_of(fields), mlp_bias=fields.flag("mlp_bias", False), **_scales(fields)
    )


def config_of_experts(fields: Fields) -> DecoderConfig:
    """Of GraniteMoE."""
    experts = ExpertsConfig(
        fields.integer("num_local_experts", 8),
        fields.integer("num_experts_per_tok", 2),
        fields.integer("intermediate_size"),
    )
    layers = later(layers_of(fields), 0, experts=True)
    return decoder(fields, layers, experts=experts, **_scales(fields))


def _scales(fields: Fields) -> dict[str, Any]:
    bias = fields.flag("attention_bias", False)
    return {
        "embedding_scale": fields.number("embedding_multiplier", 1.0),
        "query_scale": fields.number_or_none("attention_multiplier", 1.0),
        "residual_scale": fields.number("residual_multiplier", 1.0),
        "logit_scale": 1 / fields.number("logits_scaling", 1.0),
        "attention_bias": bias,
        "output_bias": bias,
    }


GRANITE = Architecture(config)
GRANITE_MOE = Architecture(
    config_of_experts,
    {
        ".block_sparse_moe.input_linear.weight": ".mlp.experts.gate_up_proj",
        ".block_sparse_moe.output_linear.weight": ".mlp.experts.down_proj",
        ".block_sparse_moe.router.layer.": ".mlp.gate.",
    },
)
