"""Qwen3, and Qwen3-MoE: norms over each head of queries and keys. arXiv 2505.09388."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.qwen2 import later_layers, sparse_layers
from luminal.models.architectures.settings import decoder, layers_of, same_windows, windows_of
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    bias = fields.flag("attention_bias", False)
    layers = layers_of(fields, windows_of(fields, later_layers(fields)))
    return decoder(fields, layers, qk_norm="head", attention_bias=bias, output_bias=bias)


def config_of_experts(fields: Fields) -> DecoderConfig:
    """Of a `config.json` of Qwen3-MoE."""
    windowed = fields.flag("use_sliding_window", False)
    layers = layers_of(fields, same_windows(fields) if windowed else None)
    counted = "num_experts" if fields.values.get("num_experts") else "num_local_experts"
    bias = fields.flag("attention_bias", False)
    return decoder(
        fields,
        sparse_layers(fields, layers),
        qk_norm="head",
        attention_bias=bias,
        output_bias=bias,
        experts=ExpertsConfig(
            fields.integer(counted),
            fields.integer("num_experts_per_tok", 8),
            fields.integer("moe_intermediate_size"),
            fields.flag("norm_topk_prob", False),
        ),
    )


QWEN3 = Architecture(config)
QWEN3_MOE = Architecture(config_of_experts)
