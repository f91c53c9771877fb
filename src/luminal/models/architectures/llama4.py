"""Llama 4 (text): chunks of positions, layers that know no positions, experts. Meta 2025."""

from __future__ import annotations

from dataclasses import replace

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import kinds_of, rotary_of
from luminal.models.architectures.settings import (
    attention_biases,
    choice,
    epsilon,
    integer,
    layer_count,
)
from luminal.models.architectures.text_part import text_part
from luminal.models.decoder_config import LayerConfig, Layers
from luminal.nn.attention import Temperature


def _layers(fields: Fields) -> Layers:
    """By `no_rope_layers`, which has a 1 for every layer that is rotary."""
    count = layer_count(fields)
    interval = fields.integer("no_rope_layer_interval", 4)
    default = [int((number + 1) % interval != 0) for number in range(count)]
    # Files have an empty list where they mean the pattern.
    turned = fields.listed("no_rope_layers", int, default) or default
    if len(turned) != count:
        raise LoadError(f"{fields.path}: no_rope_layers has {len(turned)} of {count} layers")
    kinds = kinds_of(fields, count, "full_attention", "chunked_attention") or [
        "chunked_attention" if rotates else "full_attention" for rotates in turned
    ]
    step = fields.integer("interleave_moe_layer_step", 1)
    experts = fields.listed("moe_layers", int, list(range(step - 1, count, step)))
    rotary = rotary_of(fields, theta=5e5, interleaved=True)
    if rotary.scaling and fields.flag("use_qk_norm", True):  # their norms take a factor away
        rotary = replace(rotary, scaling={**rotary.scaling, "attention_factor": 1.0})
    # Layers without positions would spread their attention thinner the longer the text is; their
    # queries grow with the position instead.
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


# Experts are multiplied in one batched product there, from the right.
def _rows_first(name: str, array: Array) -> Array:
    """Matrices of experts as (expert, out, in)."""
    return array.transpose(0, 2, 1) if array.ndim == 3 else array


LLAMA4 = Architecture(
    "Llama4ForCausalLM",
    {
        **attention_biases(),
        "intermediate_size": integer("intermediate_size_mlp", 16384),
        "norm_eps": epsilon(1e-5),
        "qk_norm": choice("use_qk_norm", True, "turned_heads"),
    },
    {
        ".feed_forward.": ".mlp.",
        ".mlp.router.": ".mlp.gate.",
        ".shared_expert.": ".shared_experts.",
    },
    layers=_layers,
    experts={
        "count": integer("num_local_experts", 16),
        "top_k": integer("num_experts_per_tok", 1),
        "intermediate_size": integer("intermediate_size"),
        "normalize": False,
        "scoring": "sigmoid",
        "shared_size": integer("intermediate_size"),
        "weighted_inputs": True,
    },
    adapted=_rows_first,
)
LLAMA4_TEXT = text_part("Llama4ForConditionalGeneration", LLAMA4)
