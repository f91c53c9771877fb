"""Gemma 4 (text), its experts, and its small models with an input of each layer. Google 2026."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.shown import shown
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
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig, LayerConfig, Layers
from luminal.models.gemma4_layer import Gemma4Attention, Gemma4Layer
from luminal.models.gguf.form import ANY_LAYER, GGUF
from luminal.models.gguf.names import NEVER


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
                window,
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


# --- files in GGUF


def _numbers(reader: Any, key: str, count: int) -> list[int]:
    """One for each layer, from a list or the number of all."""
    value = reader.fields.values.get(reader.key(key))
    if not isinstance(value, list):
        return [reader.integer(key)] * count
    if len(value) != count or not all(type(number) is int and number > 0 for number in value):
        raise LoadError(
            f"{reader.fields.path}: {reader.key(key)} is {shown(value)}; it must be a number above "
            f"0 for each of {count} layers"
        )
    return value


def _wider(reader: Any, widths: list[int], shared: int) -> bool:
    """Are the feed-forward parts of layers without keys twice as wide?"""
    keeping = len(widths) - shared
    if shared and widths == widths[:1] * keeping + [2 * widths[0]] * shared:
        return True
    if widths == widths[:1] * len(widths):
        return False
    raise LoadError(
        f"{reader.fields.path}: {reader.key('feed_forward_length')} is {shown(widths)}; it must be "
        f"the same for all layers, or twice that for the last {shared}, which keep no keys"
    )


def _proportional(reader: Any, width: int) -> dict[str, Any]:
    """The rotary parameters of layers without a window: what never turns is divided by 1e30."""
    factors = reader.factors("rope_freqs.weight")
    if factors is None:
        raise LoadError(f"{reader.fields.path}: tensor 'rope_freqs.weight' is missing")
    turned = sum(factor < NEVER for factor in factors)
    if len(factors) != width // 2 or not turned or {*factors[:turned]} != {factors[0]}:
        raise LoadError(
            f"{reader.fields.path}: rope_freqs.weight is {shown(factors)}; it must be {width // 2} "
            f"numbers, one and the same in front and {NEVER:g} behind"
        )
    parameters = {"rope_type": "proportional", "partial_rotary_factor": turned / len(factors)}
    return parameters if factors[0] == 1 else {**parameters, "factor": factors[0]}


def _read(reader: Any) -> Mapping[str, Any]:
    """What differs between layers with a window and those without."""
    count, key = reader.layers, reader.key("attention.sliding_window_pattern")
    slides = reader.slides(key)
    if slides[-1]:
        raise LoadError(
            f"{reader.fields.path}: {key} is {shown(slides)}; in a Gemma4ForCausalLM all layers "
            "but the last may have a window"
        )
    shared = reader.value("attention.shared_kv_layers") or 0
    heads = _numbers(reader, "attention.head_count_kv", count)
    near = [number for number, window in zip(heads, slides, strict=True) if window]
    both = not all(
        reader.has_tensor("attn_v.weight", layer)
        for layer in range(count - shared)
        if not slides[layer]
    )
    widths = _numbers(reader, "feed_forward_length", count)
    sizes = {
        "num_key_value_heads": near[0] if near else heads[-1],
        "num_global_key_value_heads": heads[-1],
        "intermediate_size": widths[0],
        "use_double_wide_mlp": _wider(reader, widths, min(shared, count - 1)),
        "attention_k_eq_v": both,
        "enable_moe_block": bool(reader.value("expert_count")),
        "hidden_size_per_layer_input": reader.value("embedding_length_per_layer_input") or 0,
    }
    table = reader.tensors.get("per_layer_token_embd.weight")
    if table is not None and table.shape:
        sizes["vocab_size_per_layer_input"] = table.shape[0]
    return {**sizes, "rope_parameters": _rope(reader)}


def _rope(reader: Any) -> dict[str, Any]:
    """`rope_parameters` of layers with a window and of those without."""
    rope = reader.rope()
    far, near = rope["full_attention"], rope["sliding_attention"]
    width, local = (reader.integer(f"attention.key_length{end}") for end in ("", "_swa"))
    turned = reader.value("rope.dimension_count_swa")
    if turned is not None and turned != local:
        near = {**near, "partial_rotary_factor": turned / local}
    far = {"rope_theta": far["rope_theta"], **_proportional(reader, width)}
    return {"full_attention": far, "sliding_attention": near}


def _written(config: DecoderConfig) -> Mapping[str, Any]:
    mixers = [layer.mixer for layer in config.layers if isinstance(layer.mixer, Gemma4Attention)]
    far = mixers[-1]
    near = next((mixer for mixer in mixers if mixer.window is not None), far)
    heads = [mixer.kv_heads for mixer in mixers]
    widths = [layer.intermediate_size for layer in config.layers]
    rotary = next(
        (layer.rotary for layer in config.layers if layer.window is not None),
        config.layers[-1].rotary,
    )
    assert rotary is not None
    lengths = {
        f"attention.{part}_length{end}": mixer.head_dim
        for part in ("key", "value")
        for end, mixer in (("", far), ("_swa", near))
    }
    return {
        **lengths,
        "attention.head_count_kv": heads if {*heads} != {heads[0]} else heads[0],
        "attention.shared_kv_layers": sum(mixer.reads for mixer in mixers),
        "attention.sliding_window_pattern": [mixer.window is not None for mixer in mixers],
        "embedding_length_per_layer_input": config.layer_inputs[1] if config.layer_inputs else 0,
        "feed_forward_length": widths if {*widths} != {widths[0]} else widths[0],
        "rope.dimension_count_swa": rotary.dims,
    }


LAYER_INPUT_NAMES: Mapping[str, str] = {
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
LAYER_INPUT_OUTER: Mapping[str, str] = {
    "model.layer_inputs.embed_tokens_per_layer": "per_layer_token_embd",
    "model.layer_inputs.per_layer_model_projection": "per_layer_model_proj",
    "model.layer_inputs.per_layer_projection_norm": "per_layer_proj_norm",
}
"""What GGUF files call the weights of inputs of layers, in a layer and outside of them."""


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
        ".router.proj.weight": ".router.weight",
        "model.embed_tokens_per_layer.": "model.layer_inputs.embed_tokens_per_layer.",
        "model.per_layer_model_": "model.layer_inputs.per_layer_model_",
        "model.per_layer_projection_": "model.layer_inputs.per_layer_projection_",
    },
    layers=_layers,
    only={"attention_bias": False},
    gguf=GGUF(
        "gemma4",
        "gemma4_text",
        keys={
            "attention.shared_kv_layers": "num_kv_shared_layers",
            "attention.key_length": "global_head_dim",
            "attention.key_length_swa": "head_dim",
            # Those that files may list for each layer.
            "attention.head_count_kv": None,
            "feed_forward_length": None,
            "expert_count": "num_experts",
            "expert_used_count": "top_k_experts",
            "expert_feed_forward_length": "moe_intermediate_size",
        },
        names={
            **LAYER_INPUT_NAMES,
            "layer_scalar": "layer_output_scale.weight",
            "router.weight": "ffn_gate_inp.weight",
            "router.input_scale": "ffn_gate_inp.scale",
            "router.per_expert_scale": "ffn_down_exps.scale",
            "experts.gate_up_proj": "ffn_gate_up_exps.weight",
            "experts.down_proj": "ffn_down_exps.weight",
            "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
            "post_feedforward_layernorm_1": "post_ffw_norm_1",
            "post_feedforward_layernorm_2": "post_ffw_norm_2",
        },
        outer=LAYER_INPUT_OUTER,
        defaults={"hidden_activation": "gelu_pytorch_tanh"},
        windowed=ANY_LAYER,
        windows=6,
        local_theta=1e4,
        read=_read,
        written=_written,
    ),
)
GEMMA4_TEXT = text_part("Gemma4ForConditionalGeneration", GEMMA4)
