"""Gemma 3n (text): several states of each token, shared keys, inputs of layers. Google 2025."""

from __future__ import annotations

import math
from dataclasses import replace

from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.shown import shown
from luminal.models.architectures.architecture import NORMS_AROUND, Architecture
from luminal.models.architectures.gemma4 import keys_of_layers
from luminal.models.architectures.layers import layers_of_two_rotaries
from luminal.models.architectures.settings import (
    TIED,
    attention_biases,
    head_dim,
    integer,
    layer_count,
    number_or_none,
    text,
)
from luminal.models.architectures.text_part import text_part
from luminal.models.decoder_config import Layers
from luminal.models.gemma3n_layer import Gemma3nBlock
from luminal.models.gemma4_layer import Gemma4Attention


def _widths(fields: Fields) -> list[int]:
    """The width of each layer's feed-forward part; one number is that of all."""
    count = layer_count(fields)
    if not isinstance(fields.values.get("intermediate_size"), list):
        return [fields.integer("intermediate_size", 16384)] * count
    widths = fields.listed("intermediate_size", int)
    if len(widths) != count or min(widths) < 1:
        raise LoadError(
            f"{fields.path}: intermediate_size is {shown(widths)}; it must be at least 1 for each "
            f"of {count} layers"
        )
    return widths


def _sparsities(fields: Fields) -> list[float]:
    """The share of gates that let nothing through, of each layer."""
    count = layer_count(fields)
    values = fields.values.get("activation_sparsity_pattern")
    if values is None:
        first = 10 if count > 10 else 0
        values = [0.95] * first + [0.0] * (count - first)
    if (
        not isinstance(values, list)
        or len(values) != count
        or not all(type(value) in (int, float) and 0 <= value < 1 for value in values)
    ):
        raise LoadError(
            f"{fields.path}: activation_sparsity_pattern is {shown(values)}; it must be a number "
            f"from 0 to below 1 for each of {count} layers"
        )
    return [float(value) for value in values]


def _layers(fields: Fields) -> Layers:
    """Four layers of five slide; the last ones attend the keys of earlier ones."""
    near = Fields({"rope_theta": fields.number("rope_local_base_freq", 1e4)}, fields.path)
    alike = layers_of_two_rotaries(fields, lambda layer: (layer + 1) % 5 != 0, near, 1e6)
    holders = keys_of_layers(fields, [layer.window for layer in alike], 15)
    sizes = head_dim(fields), fields.integer("num_key_value_heads", 2)
    active = fields.integer("altup_active_idx", 0, least=0)
    if active >= _streams(fields):
        raise LoadError(
            f"{fields.path}: altup_active_idx is {active}; there are {_streams(fields)} states"
        )
    scaled, rank = fields.flag("altup_correct_scale", True), fields.integer("laurel_rank", 64)
    return tuple(
        replace(
            layer,
            mixer=Gemma4Attention(*sizes, layer.window, False, holder is not None),
            intermediate_size=width,
            keys_of=holder,
            block=Gemma3nBlock(active, scaled, rank, sparsity),
        )
        for layer, holder, width, sparsity in zip(
            alike, holders, _widths(fields), _sparsities(fields), strict=True
        )
    )


def _streams(fields: Fields) -> int:
    return fields.integer("altup_num_inputs", 4)


GEMMA3N = Architecture(
    "Gemma3nForCausalLM",
    {
        **TIED,
        **attention_biases(),
        "intermediate_size": lambda fields: _widths(fields)[0],
        "activation": text("hidden_activation", "gelu_pytorch_tanh"),
        "norm_place": "both",
        "embedding_scale": lambda fields: math.sqrt(fields.integer("hidden_size")),
        "logit_softcap": number_or_none("final_logit_softcapping", 30.0),
        "max_position_embeddings": integer("max_position_embeddings", 32768),
        "layer_inputs": lambda fields: (
            fields.integer("vocab_size_per_layer_input", 262144),
            fields.integer("hidden_size_per_layer_input", 256),
        ),
        "streams": _streams,
    },
    {
        **NORMS_AROUND,
        "model.embed_tokens_per_layer.": "model.layer_inputs.embed_tokens_per_layer.",
        "model.per_layer_model_": "model.layer_inputs.per_layer_model_",
        "model.per_layer_projection_": "model.layer_inputs.per_layer_projection_",
        "model.altup_projections.": "model.streams.spreading.",
        "model.altup_unembed_projections.": "model.streams.merging.",
    },
    layers=_layers,
)
GEMMA3N_TEXT = text_part("Gemma3nForConditionalGeneration", GEMMA3N)
