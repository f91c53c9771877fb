"""Granite 4: layers of Mamba 2, some of attention, and experts or none. IBM 2025."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.granite import GATES_FIRST, GRANITE_MOE
from luminal.models.architectures.layers import kinds_of, rotary_of
from luminal.models.architectures.mamba import (
    MAMBA2_CHANGES,
    Mamba2Config,
    head_width,
    mamba2_names,
    refuse_bounded_steps,
    written_mamba2,
)
from luminal.models.architectures.settings import experts_of, layer_count
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig, LayerConfig, Layers
from luminal.models.gguf.changes import INTERLEAVED, Joined
from luminal.models.gguf.form import GGUF

MAMBA2_NAMES = {
    ".mamba.norm.weight": ".self_attn.gated_norm",
    **{
        f".mamba.{part}": f".self_attn.{part}"
        for part in ("in_proj.", "conv1d.", "dt_bias", "A_log", "D", "out_proj.")
    },
}
"""What a layer of Mamba 2 calls its weights, beside others that have attention."""


def mamba2_of(fields: Fields, inner: int, heads: int, states: int) -> Mamba2Config:
    """The mixer of a hybrid's `mamba_` keys: `inner` channels, `heads` and `states` by default."""
    refuse_bounded_steps(fields)
    heads = fields.integer("mamba_n_heads", heads)
    width = inner // heads
    if fields.values.get("mamba_d_head") != "auto":
        width = fields.integer("mamba_d_head", width)
    if heads * width != inner:
        raise LoadError(f"{fields.path}: {heads} heads of {width} channels are not {inner}")
    return Mamba2Config(
        heads,
        width,
        fields.integer("mamba_d_state", states),
        fields.integer("mamba_n_groups", 1),
        fields.integer("mamba_d_conv", 4),
        fields.flag("mamba_proj_bias", False),
        fields.flag("mamba_conv_bias", True),
    )


def _layers(fields: Fields) -> Layers:
    """Mamba 2 where nothing says otherwise; rotary positions only where they are asked for."""
    count = layer_count(fields)
    key = "layers_block_type" if fields.values.get("layer_types") is None else "layer_types"
    names = ("full_attention", "linear_attention", "attention", "mamba")
    kinds = kinds_of(fields, count, *names, key=key) or ["mamba"] * count
    inner = fields.integer("mamba_expand", 2) * fields.integer("hidden_size")
    turned = fields.values.get("position_embedding_type") == "rope"
    has_experts = _expert_count(fields) > 0
    attention = LayerConfig(rotary=rotary_of(fields) if turned else None, experts=has_experts)
    mamba = LayerConfig(mixer=mamba2_of(fields, inner, 128, 256), experts=has_experts)
    attends = ("attention", "full_attention")
    return tuple(attention if kind in attends else mamba for kind in kinds)


def _expert_count(fields: Fields) -> int:
    return fields.integer("num_local_experts", 8, least=0)


def _shared_size(fields: Fields) -> int:
    return fields.integer("shared_intermediate_size", 1024)


def _inner(fields: Fields) -> int:
    """The width of the part that all tokens see, which is all there is without experts."""
    return fields.integer("intermediate_size") if _expert_count(fields) else _shared_size(fields)


def _experts(fields: Fields) -> ExpertsConfig | None:
    assert GRANITE_MOE.experts is not None
    experts = {**GRANITE_MOE.experts, "shared_size": _shared_size}
    return experts_of(experts, fields) if _expert_count(fields) else None


def _divided(name: str, array: Array, config: DecoderConfig) -> Iterator[tuple[str, Array]]:
    """What all tokens see as two projections, which are the whole part without experts."""
    if ".mlp.shared_experts." not in name:
        yield name, array
        return
    if config.experts is None:
        name = name.replace(".shared_experts.", ".")
    if ".gate_up_proj." not in name:
        yield name, array
        return
    if array.shape[0] % 2:
        raise LoadError(f"weights: {name!r} has {array.shape[0]} rows, which are not two halves")
    for part, rows in zip(("gate_proj", "up_proj"), np.split(array, 2), strict=True):
        yield name.replace("gate_up_proj", part), rows


def _read(reader: Any) -> Mapping[str, Any]:
    """Which layers attend, and whether they turn."""
    inner, hidden = reader.integer("ssm.inner_size"), reader.integer("embedding_length")
    if inner % hidden:
        raise LoadError(f"{reader.fields.path}: {inner} channels are no multiple of {hidden}")
    turned = reader.fields.flag(reader.key("rope.scaling.finetuned"), True)
    return {
        "layer_types": [
            "full_attention" if attends else "linear_attention" for attends in reader.attends()
        ],
        "mamba_expand": inner // hidden,
        "mamba_d_head": head_width(reader),
        "position_embedding_type": "rope" if turned else "nope",
    }


def _written(config: DecoderConfig) -> Mapping[str, Any]:
    mixer = next(layer.mixer for layer in config.layers if layer.mixer is not None)
    assert isinstance(mixer, Mamba2Config)
    shared = config.intermediate_size if config.experts is None else config.experts.shared_size
    return {
        **written_mamba2(mixer),
        "expert_shared_feed_forward_length": shared,
        "rope.scaling.finetuned": any(layer.rotary is not None for layer in config.layers),
    }


def _form(gates: Joined, down: str, **more: Any) -> GGUF:
    return GGUF(
        "granitehybrid",
        "granitemoehybrid",
        keys={
            "feed_forward_length": "intermediate_size",
            "expert_count": "num_local_experts",
            "expert_used_count": "num_experts_per_tok",
            "expert_shared_feed_forward_length": "shared_intermediate_size",
            "ssm.conv_kernel": "mamba_d_conv",
            "ssm.state_size": "mamba_d_state",
            "ssm.group_count": "mamba_n_groups",
            "ssm.time_step_rank": "mamba_n_heads",
        },
        names={
            **mamba2_names("self_attn"),
            "mlp.experts.down_proj": "ffn_down_exps.weight",
            "mlp.shared_experts.down_proj": down,
        },
        flags={"mamba_proj_bias": "ssm_in.bias", "mamba_conv_bias": "ssm_conv1d.bias"},
        hybrid=True,
        changes={**INTERLEAVED, **MAMBA2_CHANGES},
        joined={
            "mlp.experts.gate_up_proj": GATES_FIRST,
            "mlp.shared_experts.gate_up_proj.weight": gates,
        },
        read=_read,
        written=_written,
        **more,
    )


def _halves(gates: str, others: str) -> Joined:
    """Gates and what they let through, of all tokens."""
    return Joined(
        (gates, others),
        lambda gate, other, heads: np.concatenate((gate, other)),
        lambda both, heads: tuple(np.split(both, 2)),  # type: ignore[arg-type, return-value]
    )


GRANITE_HYBRID = Architecture(
    "GraniteMoeHybridForCausalLM",
    {**GRANITE_MOE.settings, "intermediate_size": _inner, "experts": _experts},
    {
        **GRANITE_MOE.names,
        ".shared_mlp.input_linear.": ".mlp.shared_experts.gate_up_proj.",
        ".shared_mlp.output_linear.": ".mlp.shared_experts.down_proj.",
        **MAMBA2_NAMES,
    },
    layers=_layers,
    only={"hidden_act": "silu"},
    divided=_divided,
    gguf=_form(
        _halves("ffn_gate_shexp.weight", "ffn_up_shexp.weight"),
        "ffn_down_shexp",
        only_with=("expert_count",),
        only_for=lambda config: config.experts is not None,
    ),
)
# Files have other names for the part that all tokens see where it is the whole one.
GRANITE_HYBRID_DENSE = replace(
    GRANITE_HYBRID,
    gguf=_form(
        _halves("ffn_gate.weight", "ffn_up.weight"),
        "ffn_down",
        defaults={"num_local_experts": 0},
        only_without=("expert_count",),
        only_for=lambda config: config.experts is None,
    ),
)
