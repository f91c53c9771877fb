"""ERNIE 4.5 and its experts: a Llama that turns neighbouring features. Baidu 2025."""

from __future__ import annotations

from dataclasses import replace

from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layers_of, refuse, rotary_of
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig, LayerConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    return _decoder(fields, _layers(fields), None)


def config_of_experts(fields: Fields) -> DecoderConfig:
    """Of the experts, in every `moe_layer_interval`-th layer from a first one to a last."""
    layers = _layers(fields)
    first = fields.integer("moe_layer_start_index", 1, least=0)
    last = fields.integer("moe_layer_end_index", -1, least=-1)
    interval = fields.integer("moe_layer_interval", 1)
    last = len(layers) - 1 if last == -1 else last
    width = fields.integer("moe_intermediate_size")
    experts = ExpertsConfig(
        fields.integer("moe_num_experts"),
        fields.integer("moe_k", 6),
        width,
        correction=True,
        shared_size=width * fields.integer("moe_num_shared_experts", 2, least=0),
    )
    chosen = tuple(
        replace(layer, experts=first <= number <= last and (number + 1) % interval == 0)
        for number, layer in enumerate(layers)
    )
    return _decoder(fields, chosen, experts)


def _layers(fields: Fields) -> tuple[LayerConfig, ...]:
    return layers_of(fields, rotary=rotary_of(fields, theta=5e5, interleaved=True))


def _decoder(
    fields: Fields, layers: tuple[LayerConfig, ...], experts: ExpertsConfig | None
) -> DecoderConfig:
    bias = fields.flag("use_bias", False)
    if experts is not None:
        refuse(fields, use_bias=False)
    return decoder(
        fields,
        layers,
        norm_eps=fields.number("rms_norm_eps", 1e-5, most=1),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        tie_word_embeddings=fields.flag("tie_word_embeddings", True),
        experts=experts,
    )


def _flat_correction(name: str, array: Array) -> Array:
    """One number for each expert."""
    return array.reshape(-1) if name.endswith(".e_score_correction_bias") else array


ERNIE4_5 = Architecture(config)
ERNIE4_5_MOE = Architecture(
    config_of_experts, {".mlp.moe_statics.": ".mlp.gate."}, adapted=_flat_correction
)
