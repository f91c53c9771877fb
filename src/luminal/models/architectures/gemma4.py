"""Gemma 4 (text), its experts, and its small models with an input of each layer. Google 2026."""

from __future__ import annotations

import math
from dataclasses import replace

from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import NORMS_AROUND, Architecture
from luminal.models.architectures.layers import Windows, rotary_of, windows_of
from luminal.models.architectures.settings import (
    MAX_HEADS,
    TIED,
    head_dim,
    number_or_none,
    text,
)
from luminal.models.architectures.text_part import text_part
from luminal.models.decoder_config import ExpertsConfig, LayerConfig, Layers
from luminal.models.gemma4_layer import Gemma4Attention, Gemma4Layer


def _experts(fields: Fields) -> ExpertsConfig | None:
    if not fields.flag("enable_moe_block", False):
        return None
    return ExpertsConfig(
        fields.integer("num_experts"),
        fields.integer("top_k_experts"),
        fields.integer("moe_intermediate_size"),
    )


def _layer_inputs(fields: Fields) -> tuple[int, int] | None:
    width = fields.integer("hidden_size_per_layer_input", 256, least=0)
    return (fields.integer("vocab_size_per_layer_input"), width) if width else None


_ROPE = {
    "sliding_attention": {"rope_theta": 1e4},
    "full_attention": {
        "rope_type": "proportional",
        "rope_theta": 1e6,
        "partial_rotary_factor": 0.25,
    },
}
"""Where a file says nothing of positions."""


def _layers(fields: Fields) -> Layers:
    """Five layers of six slide; the others have heads of their own; the last ones keep no keys."""
    if fields.values.get("use_bidirectional_attention") == "all":
        raise LoadError(f"{fields.path}: use_bidirectional_attention='all' is not supported")
    windows = [*windows_of(fields, lambda layer: (layer + 1) % 6 != 0)]
    # The last layer always sees the whole text, wherever the pattern stops.
    windows[-1] = None
    holders = keys_of_layers(fields, windows, 0)
    both = fields.flag("attention_k_eq_v", False)
    wide, kv_heads = _global_heads(fields, windows, both)
    rope = fields.section("rope_parameters") or replace(fields, values=_ROPE)
    near = rotary_of(fields, rope.section("sliding_attention"))
    far = rotary_of(fields, rope.section("full_attention"), share=1.0, width=wide)
    wider = 2 if fields.flag("use_double_wide_mlp", False) else 1
    layers = []
    for number, window in enumerate(windows):
        reads = holders[number] is not None
        sizes = (wide, kv_heads) if window is None else (head_dim(fields), _kv_heads(fields))
        layers.append(
            LayerConfig(
                rotary=far if window is None else near,
                mixer=Gemma4Attention(*sizes, window, both and window is None, reads),
                intermediate_size=fields.integer("intermediate_size") * (wider if reads else 1),
                keys_of=holders[number],
                block=Gemma4Layer,
            )
        )
    return tuple(layers)


def keys_of_layers(fields: Fields, windows: Windows, shared: int) -> list[int | None]:
    """The layer whose keys each of the last `num_kv_shared_layers` attends (`shared` by default).

    It is the last one of the same kind that has keys of its own: windows fit, and so do angles.
    """
    readers = fields.integer("num_kv_shared_layers", shared, least=0)
    keeping = len(windows) - readers
    kinds = [window is None for window in windows]
    if readers and {*kinds[: max(keeping, 0)]} != {*kinds}:
        raise LoadError(
            f"{fields.path}: num_kv_shared_layers is {readers}; no layer keeps their keys"
        )
    return [
        None if number < keeping else max(n for n in range(keeping) if kinds[n] == kind)
        for number, kind in enumerate(kinds)
    ]


def _kv_heads(fields: Fields) -> int:
    return fields.integer("num_key_value_heads", fields.integer("num_attention_heads"))


def _global_heads(fields: Fields, windows: list[int | None], both: bool) -> tuple[int, int]:
    """The width of a head, and heads of keys, of layers without a window."""
    heads = _kv_heads(fields)
    if fields.values.get("per_layer_config") is not None:  # it has what differs
        config = fields.section("per_layer_config").section(str(windows.index(None)))
        return (
            config.integer("head_dim", head_dim(fields), most=MAX_HEADS),
            config.integer("num_key_value_heads", heads),
        )
    wide = fields.integer("global_head_dim", 512, most=MAX_HEADS)
    return wide, fields.integer("num_global_key_value_heads", heads) if both else heads


GEMMA4 = Architecture(
    "Gemma4ForCausalLM",
    {
        **TIED,
        "activation": text("hidden_activation", "gelu_pytorch_tanh"),
        "norm_place": "both",
        "embedding_scale": lambda fields: math.sqrt(fields.integer("hidden_size")),
        "logit_softcap": number_or_none("final_logit_softcapping"),
        "experts": _experts,
        "layer_inputs": _layer_inputs,
    },
    {
        **NORMS_AROUND,
        ".router.scale": ".router.input_scale",
        ".router.proj.": ".router.",
        "model.embed_tokens_per_layer.": "model.layer_inputs.embed_tokens_per_layer.",
        "model.per_layer_model_": "model.layer_inputs.per_layer_model_",
        "model.per_layer_projection_": "model.layer_inputs.per_layer_projection_",
    },
    layers=_layers,
    only={"attention_bias": False},
)
GEMMA4_TEXT = text_part("Gemma4ForConditionalGeneration", GEMMA4)
