"""Jamba: layers of Mamba with norms, one of eight of attention, and experts. arXiv 2403.19887."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.mamba import (
    LOGARITHMS,
    OF_ONE_CHANNEL,
    MambaConfig,
    rank_of,
)
from luminal.models.architectures.settings import integer, layer_count
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Layers
from luminal.models.gguf.form import GGUF


def _chosen(fields: Fields, what: str, period: int, offset: int) -> list[bool]:
    """Which layers are one of so many, by two keys."""
    period = fields.integer(f"{what}_layer_period", period)
    offset = fields.integer(f"{what}_layer_offset", offset, least=0)
    return [layer % period == offset for layer in range(layer_count(fields))]


def _layers(fields: Fields) -> Layers:
    """No layer knows positions: those of Mamba read in order."""
    hidden = fields.integer("hidden_size")
    mamba = MambaConfig(
        fields.integer("mamba_expand", 2) * hidden,
        fields.integer("mamba_d_state", 16),
        rank_of(fields, "mamba_dt_rank"),
        fields.integer("mamba_d_conv", 4),
        fields.flag("mamba_proj_bias", False),
        fields.flag("mamba_conv_bias", True),
        fields.number("rms_norm_eps", 1e-6, most=1),
        norm_weights=True,
    )
    attends, sparse = _chosen(fields, "attn", 8, 4), _chosen(fields, "expert", 2, 1)
    several = fields.integer("num_experts", 16) > 1
    return tuple(
        LayerConfig(mixer=None if attention else mamba, experts=several and experts)
        for attention, experts in zip(attends, sparse, strict=True)
    )


def _read(reader: Any) -> Mapping[str, Any]:
    """Which layers attend and which have experts, that files tell one by one."""
    count = reader.integer("block_count")
    sparse = [reader.has_tensor("ffn_gate_inp.weight", layer) for layer in range(count)]
    inner, hidden = reader.integer("ssm.inner_size"), reader.integer("embedding_length")
    if inner % hidden:
        raise LoadError(f"{reader.fields.path}: {inner} channels are no multiple of {hidden}")
    return {
        "mamba_expand": inner // hidden,
        **_period(reader, "attn", reader.attends()),
        **_period(reader, "expert", sparse),
    }


def _period(reader: Any, what: str, chosen: list[bool]) -> Mapping[str, int]:
    """Which layers are chosen as one of so many. Raises LoadError where that says less."""
    numbers = [number for number, one in enumerate(chosen) if one]
    first = numbers[0] if numbers else len(chosen)
    period = numbers[1] - first if len(numbers) > 1 else len(chosen) + 1
    if chosen != [layer % period == first for layer in range(len(chosen))]:
        raise LoadError(f"{reader.fields.path}: layers {numbers} are not one of so many")
    return {f"{what}_layer_period": period, f"{what}_layer_offset": first}


def _written(config: DecoderConfig) -> Mapping[str, Any]:
    mixer = next(layer.mixer for layer in config.layers if layer.mixer is not None)
    assert isinstance(mixer, MambaConfig)
    return {
        "ssm.conv_kernel": mixer.width,
        "ssm.inner_size": mixer.inner,
        "ssm.state_size": mixer.states,
        "ssm.time_step_rank": mixer.rank,
    }


JAMBA = Architecture(
    "JambaForCausalLM",
    {"max_position_embeddings": integer("max_position_embeddings", 262144)},
    {
        "model.final_layernorm.": "model.norm.",
        ".pre_ff_layernorm.": ".post_attention_layernorm.",
        ".feed_forward.": ".mlp.",
        ".mlp.router.": ".mlp.gate.",
        **{f".mamba.{part}_layernorm.": f".self_attn.{part}_norm." for part in ("dt", "b", "c")},
        **{
            f".mamba.{part}": f".self_attn.{part}"
            for part in ("in_proj.", "conv1d.", "x_proj.", "dt_proj.", "A_log", "D", "out_proj.")
        },
    },
    layers=_layers,
    experts={
        "count": integer("num_experts", 16),
        "top_k": integer("num_experts_per_tok", 2),
        "intermediate_size": integer("intermediate_size"),
        "normalize": False,
    },
    only={"hidden_act": "silu"},
    gguf=GGUF(
        "jamba",
        keys={
            "attention.key_length": None,
            "ssm.conv_kernel": "mamba_d_conv",
            "ssm.state_size": "mamba_d_state",
            "ssm.time_step_rank": "mamba_dt_rank",
        },
        names={
            "self_attn.in_proj": "ssm_in",
            "self_attn.conv1d": "ssm_conv1d",
            "self_attn.x_proj": "ssm_x",
            "self_attn.dt_proj": "ssm_dt",
            "self_attn.dt_norm": "ssm_dt_norm",
            "self_attn.b_norm": "ssm_b_norm",
            "self_attn.c_norm": "ssm_c_norm",
            "self_attn.A_log": "ssm_a",
            "self_attn.D": "ssm_d",
            "self_attn.out_proj": "ssm_out",
        },
        flags={"mamba_proj_bias": "ssm_in.bias", "mamba_conv_bias": "ssm_conv1d.bias"},
        hybrid=True,
        changes={"ssm_conv1d": OF_ONE_CHANNEL, "ssm_a": LOGARITHMS},
        read=_read,
        written=_written,
    ),
)
