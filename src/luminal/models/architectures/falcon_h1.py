"""Falcon-H1: attention and Mamba 2 in one layer, each with scales of its own. arXiv 2507.22448."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.shown import shown
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.granite_hybrid import mamba2_of
from luminal.models.architectures.layers import rotary_of
from luminal.models.architectures.mamba import (
    MAMBA2_CHANGES,
    Mamba2Config,
    head_width,
    mamba2_names,
    written_mamba2,
)
from luminal.models.architectures.settings import (
    attention_biases,
    epsilon,
    flag,
    integer,
    layer_count,
    number,
)
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Layers
from luminal.models.falcon_h1_layer import FalconH1Block
from luminal.models.gguf.form import GGUF


def _numbers(fields: Fields, key: str, count: int) -> list[float]:
    """So many numbers, each 1 by default."""
    if fields.values.get(key) is None:
        return [1.0] * count
    values = fields.values[key]
    if (
        not isinstance(values, list)
        or len(values) != count
        or not all(type(value) in (int, float) for value in values)
    ):
        raise LoadError(f"{fields.path}: {key} is {shown(values)}; it must be {count} numbers")
    return [float(value) for value in values]


def _layers(fields: Fields) -> Layers:
    """All layers are alike."""
    inner = fields.integer("mamba_expand", 2) * fields.integer("hidden_size")
    if "mamba_d_ssm" not in fields.values or fields.values["mamba_d_ssm"] is not None:
        inner = fields.integer("mamba_d_ssm", 1024)
    norm = None
    if fields.flag("mamba_rms_norm", False):
        norm = "before" if fields.flag("mamba_norm_before_gate", True) else "after"
    mixer = replace(
        mamba2_of(fields, inner, 128, 256),
        output_bias=fields.flag("projectors_bias", False),
        norm=norm,
        scales=tuple(_numbers(fields, "ssm_multipliers", 5)),
    )
    gates, fed = _numbers(fields, "mlp_multipliers", 2)
    block = FalconH1Block(
        mixer,
        read=fields.number("attention_in_multiplier", 1.0),
        attended=fields.number("attention_out_multiplier", 1.0),
        keys=fields.number("key_multiplier", 1.0),
        entered=fields.number("ssm_in_multiplier", 1.0),
        scanned=fields.number("ssm_out_multiplier", 1.0),
        gates=gates,
        fed=fed,
    )
    layer = LayerConfig(rotary=rotary_of(fields), block=block)
    return (layer,) * layer_count(fields)


def _written(config: DecoderConfig) -> Mapping[str, Any]:
    block = config.layers[0].block
    assert isinstance(block, FalconH1Block)
    assert isinstance(block.mixer, Mamba2Config)
    return written_mamba2(block.mixer)


FALCON_H1 = Architecture(
    "FalconH1ForCausalLM",
    {
        **attention_biases(),
        "mlp_bias": flag("mlp_bias", False),
        "norm_eps": epsilon(1e-5),
        "max_position_embeddings": integer("max_position_embeddings", 8192),
        "embedding_scale": number("embedding_multiplier", 1.0),
        "logit_scale": number("lm_head_multiplier", 1.0),
    },
    {
        "model.final_layernorm.": "model.norm.",
        ".pre_ff_layernorm.": ".post_attention_layernorm.",
        ".feed_forward.": ".mlp.",
        ".mamba.norm.weight": ".mamba.gated_norm",
    },
    layers=_layers,
    only={"hidden_act": "silu"},
    # Files have the scales in their weights.
    gguf=GGUF(
        "falcon-h1",
        "falcon_h1",
        keys={
            "embedding_scale": None,
            "logit_scale": None,
            "ssm.conv_kernel": "mamba_d_conv",
            "ssm.inner_size": "mamba_d_ssm",
            "ssm.state_size": "mamba_d_state",
            "ssm.group_count": "mamba_n_groups",
            "ssm.time_step_rank": "mamba_n_heads",
        },
        names=mamba2_names("mamba"),
        flags={
            "mamba_proj_bias": "ssm_in.bias",
            "mamba_conv_bias": "ssm_conv1d.bias",
            "mamba_rms_norm": "ssm_norm.weight",
            "projectors_bias": "ssm_out.bias",
        },
        changes=MAMBA2_CHANGES,
        defaults={"mamba_norm_before_gate": False},
        read=lambda reader: {"mamba_d_head": head_width(reader)},
        written=_written,
    ),
)
