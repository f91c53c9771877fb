"""Gemma 3n (text): several states of each token, shared keys, inputs of layers. Google 2025."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any

from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.shown import shown
from luminal.models.architectures.architecture import NORMS_AROUND, Architecture
from luminal.models.architectures.gemma4 import (
    LAYER_INPUT_NAMES,
    LAYER_INPUT_OUTER,
    keys_of_layers,
)
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
from luminal.models.decoder_config import DecoderConfig, Layers
from luminal.models.gemma3n_layer import Gemma3nBlock
from luminal.models.gemma4_layer import Gemma4Attention
from luminal.models.gguf.form import ANY_LAYER, GGUF


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


_SPARSITY = "activation_sparsity_scale"


def _read(reader: Any) -> Mapping[str, Any]:
    """What files say by shapes, and the sparsity of gates as so many standard deviations."""
    sizes = {}
    for key, name in (
        ("vocab_size_per_layer_input", "per_layer_token_embd.weight"),
        ("laurel_rank", "blk.0.laurel_l.weight"),
    ):
        if name not in reader.tensors:
            raise LoadError(f"{reader.fields.path}: tensor {name!r} is missing")
        sizes[key] = reader.tensors[name].shape[0]
    cuts = reader.fields.listed(reader.key(_SPARSITY), float)
    shares = [round(NormalDist().cdf(cut), 6) for cut in cuts]
    return {**sizes, "activation_sparsity_pattern": shares}


def _written(config: DecoderConfig) -> Mapping[str, Any]:
    blocks = [layer.block for layer in config.layers]
    shares = [block.sparsity for block in blocks if isinstance(block, Gemma3nBlock)]
    cuts = [NormalDist().inv_cdf(share) if share else -math.inf for share in shares]
    assert config.layer_inputs is not None
    return {
        "altup.active_idx": next(b.active for b in blocks if isinstance(b, Gemma3nBlock)),
        "altup.num_inputs": config.streams,
        "attention.shared_kv_layers": sum(layer.keys_of is not None for layer in config.layers),
        "embedding_length_per_layer_input": config.layer_inputs[1],
        _SPARSITY: cuts,
    }


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
    gguf=GGUF(
        "gemma3n",
        "gemma3n_text",
        keys={
            "altup.active_idx": "altup_active_idx",
            "altup.num_inputs": "altup_num_inputs",
            "attention.shared_kv_layers": "num_kv_shared_layers",
            "embedding_length_per_layer_input": "hidden_size_per_layer_input",
            "feed_forward_length": "intermediate_size",
        },
        names={
            "altup.correction_coefs": "altup_correct_coef",
            "altup.correct_output_scale": "altup_correct_scale.weight",
            "altup.prediction_coefs": "altup_predict_coef",
            "altup.modality_router": "altup_router",
            "altup.router_norm": "altup_router_norm",
            "laurel.linear_left": "laurel_l",
            "laurel.linear_right": "laurel_r",
            "laurel.post_laurel_norm": "laurel_post_norm",
            **LAYER_INPUT_NAMES,
        },
        outer={
            **LAYER_INPUT_OUTER,
            "model.streams.spreading.*": "altup_proj",
            "model.streams.merging.*": "altup_unembd_proj",
        },
        defaults={"hidden_activation": "gelu_pytorch_tanh"},
        windowed=ANY_LAYER,
        windows=5,
        local_theta=1e4,
        read=_read,
        written=_written,
    ),
)
GEMMA3N_TEXT = text_part("Gemma3nForConditionalGeneration", GEMMA3N)
