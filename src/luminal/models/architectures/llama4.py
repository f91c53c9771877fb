"""Llama 4 (text): chunks of positions, layers that know no positions, experts. Meta 2025."""

from __future__ import annotations

from dataclasses import replace

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, kinds_of, layer_count, rotary_of
from luminal.models.architectures.text_part import text_part
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig, LayerConfig
from luminal.nn.attention import Temperature


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`; `no_rope_layers` has a 1 for every layer that is rotary."""
    bias = fields.flag("attention_bias", False)
    width = fields.integer("intermediate_size")
    return decoder(
        fields,
        _layers(fields),
        intermediate_size=fields.integer("intermediate_size_mlp", 16384),
        norm_eps=fields.number("rms_norm_eps", 1e-5, most=1),
        qk_norm="turned_heads" if fields.flag("use_qk_norm", True) else None,
        attention_bias=bias,
        output_bias=bias,
        experts=ExpertsConfig(
            fields.integer("num_local_experts", 16),
            fields.integer("num_experts_per_tok", 1),
            width,
            False,
            "sigmoid",
            shared_size=width,
            weighted_inputs=True,
        ),
    )


def _layers(fields: Fields) -> tuple[LayerConfig, ...]:
    count = layer_count(fields)
    interval = fields.integer("no_rope_layer_interval", 4)
    default = [int((number + 1) % interval != 0) for number in range(count)]
    turned = fields.listed("no_rope_layers", int, default) or default
    if len(turned) != count:
        raise LoadError(f"{fields.path}: no_rope_layers has {len(turned)} of {count} layers")
    kinds = kinds_of(fields, count, "full_attention", "chunked_attention") or [
        "chunked_attention" if each else "full_attention" for each in turned
    ]
    step = fields.integer("interleave_moe_layer_step", 1)
    experts = fields.listed("moe_layers", int, list(range(step - 1, count, step)))
    rotary = rotary_of(fields, theta=5e5, interleaved=True)
    if rotary.scaling and fields.flag("use_qk_norm", True):  # their norms take a factor away
        rotary = replace(rotary, scaling={**rotary.scaling, "attention_factor": 1.0})
    temperature = None
    if fields.flag("attn_temperature_tuning", True):
        length = fields.integer("floor_scale", 8192)
        temperature = Temperature(fields.number("attn_scale", 0.1), length, 1)
    chunk = fields.integer("attention_chunk_size", 8192)
    return tuple(
        LayerConfig(
            rotary=rotary if turned[number] else None,
            experts=number in experts,
            chunk=chunk if kinds[number] == "chunked_attention" else None,
            temperature=None if turned[number] else temperature,
        )
        for number in range(count)
    )


def _rows_first(name: str, array: Array) -> Array:
    """Matrices of experts as (expert, out, in)."""
    return array.transpose(0, 2, 1) if array.ndim == 3 else array


LLAMA4 = Architecture(
    config,
    {
        ".feed_forward.": ".mlp.",
        ".mlp.router.": ".mlp.gate.",
        ".shared_expert.": ".shared_experts.",
    },
    adapted=_rows_first,
)
LLAMA4_TEXT = text_part(LLAMA4)
