"""Qwen2 and Qwen2.5, and Qwen2-MoE: queries, keys and values have biases. arXiv 2407.10671."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layers_of, windows_of
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig, LayerConfig


def later_layers(fields: Fields) -> Callable[[int], bool]:
    """Layers from `max_window_layers` on slide, where `use_sliding_window` says so."""
    used = fields.flag("use_sliding_window", False)
    used = used and fields.values.get("sliding_window") is not None
    first = fields.integer("max_window_layers", 28, least=0)
    return lambda layer: used and layer >= first


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    return decoder(
        fields, layers_of(fields, windows_of(fields, later_layers(fields))), attention_bias=True
    )


def config_of_experts(fields: Fields) -> DecoderConfig:
    """Of Qwen2-MoE; of the first `max_window_layers` every other one slides."""
    used = fields.flag("use_sliding_window", False)
    last = fields.integer("max_window_layers", 28, least=0)
    layers = layers_of(
        fields,
        windows_of(fields, lambda layer: used and layer < last and (layer + 1) % 2 != 0),
    )
    return decoder(
        fields,
        sparse_layers(fields, layers),
        attention_bias=fields.flag("qkv_bias", True),
        experts=shared_experts(fields, 4, False),
    )


def sparse_layers(fields: Fields, layers: tuple[LayerConfig, ...]) -> tuple[LayerConfig, ...]:
    """Every `decoder_sparse_step`-th layer has experts, but for some listed."""
    dense = fields.listed("mlp_only_layers", int, [])
    step = fields.integer("decoder_sparse_step", 1)
    return tuple(
        replace(layer, experts=number not in dense and (number + 1) % step == 0)
        for number, layer in enumerate(layers)
    )


def shared_experts(fields: Fields, top_k: int, normalize: bool) -> ExpertsConfig:
    """Experts beside a gated one that all tokens see; `top_k`, `normalize`: by default."""
    return ExpertsConfig(
        fields.integer("num_experts"),
        fields.integer("num_experts_per_tok", top_k),
        fields.integer("moe_intermediate_size"),
        fields.flag("norm_topk_prob", normalize),
        shared_size=fields.integer("shared_expert_intermediate_size"),
        shared_gate=True,
    )


QWEN2 = Architecture(config)
QWEN2_MOE = Architecture(config_of_experts, {".shared_expert.": ".shared_experts."})
