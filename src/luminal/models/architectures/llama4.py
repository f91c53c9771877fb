"""Llama 4 (text): chunks of positions, layers that know no positions, experts. Meta 2025."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

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
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Layers
from luminal.models.gguf.changes import TRANSPOSED, Heads, Joined
from luminal.models.gguf.form import GGUF
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


def _gates(gate: Array, up: Array, heads: Heads) -> Array:
    """Experts' gates and what they let through, side by side, from the right."""
    return np.concatenate((gate, up), 1).swapaxes(1, 2)


def _halves(both: Array, heads: Heads) -> tuple[Array, Array]:
    """The inverse of `_gates`."""
    gate, up = np.split(both.swapaxes(1, 2), 2, 1)
    return gate, up


_STEP = "interleave_moe_layer_step"
_WITHOUT_NORMS = 128  # experts of Maverick, the one model that does not norm queries and keys


def _read(reader: Any) -> Mapping[str, Any]:
    """Readers know chunks, positions and temperatures of the published models; 0 stands for models
    that have none of these, of whose last layer readers and folders do not say the same.
    """
    if reader.value("attention.sliding_window") == 0:
        key = reader.key("attention.sliding_window")
        raise LoadError(
            f"{reader.fields.path}: {key} is 0, as in files of models without chunks of positions; "
            "they are not supported; load the folder that the file was made of"
        )
    return {"use_qk_norm": reader.value("expert_count") != _WITHOUT_NORMS}


def _written(config: DecoderConfig) -> Mapping[str, Any]:
    sparse = [number for number, layer in enumerate(config.layers) if layer.experts]
    return {_STEP: sparse[0] + 1 if sparse else len(config.layers) + 1}


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
    gguf=GGUF(
        "llama4",
        "llama4_text",
        keys={_STEP: _STEP},
        names={"mlp.experts.down_proj": "ffn_down_exps.weight"},
        changes={"ffn_down_exps.weight": TRANSPOSED},
        joined={
            "mlp.experts.gate_up_proj": Joined(
                ("ffn_gate_exps.weight", "ffn_up_exps.weight"), _gates, _halves
            )
        },
        read=_read,
        written=_written,
    ),
)
LLAMA4_TEXT = text_part("Llama4ForConditionalGeneration", LLAMA4)
