"""MPT: linear biases for positions, no biases of projections and norms. MosaicML 2023."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import (
    MAX_HEADS,
    MAX_LAYERS,
    TIED,
    epsilon,
    integer,
    number_or_none,
    plain,
)
from luminal.models.gguf.form import GGUF


def _read(fields: Fields) -> Fields:
    """With what `attn_config` says of attention beside the rest."""
    inner = fields.section("attn_config").values
    names = ("attn_type", "clip_qkv", "softmax_scale", "prefix_lm", "qk_ln", "alibi")
    told = {name: inner.get(name) for name in (*names, "alibi_bias_max")}
    return replace(fields, values={**fields.values, **told})


def _attention(reader: Any) -> Mapping[str, Any]:
    """What `config.json` says of attention in a section of its own."""
    limit, bias = reader.number("attention.clamp_kqv"), reader.number("attention.max_alibi_bias")
    return {"attn_config": {"clip_qkv": limit, "alibi_bias_max": round(bias or 8)}}


MPT = Architecture(
    "MptForCausalLM",
    {
        **plain(bias=False),
        **TIED,
        "num_hidden_layers": integer("n_layers", 24, most=MAX_LAYERS),
        "hidden_size": integer("d_model", 2048),
        "intermediate_size": lambda fields: 4 * fields.integer("d_model", 2048),
        "num_attention_heads": integer("n_heads", 16, most=MAX_HEADS),
        "num_key_value_heads": None,
        "head_dim": None,
        "max_position_embeddings": integer("max_seq_len", 2048),
        "activation": "gelu",  # no key says it
        "norm": "layer_without_bias",
        "norm_eps": epsilon(1e-5, "layer_norm_epsilon"),
        "positions": "alibi",
        "projection_limit": number_or_none("clip_qkv"),
        "query_scale": number_or_none("softmax_scale"),
    },
    {
        "transformer.blocks.": "model.layers.",
        "transformer.wte.": "model.embed_tokens.",
        "transformer.norm_f.": "model.norm.",
        ".norm_1.": ".input_layernorm.",
        ".norm_2.": ".post_attention_layernorm.",
        ".attn.Wqkv.": ".self_attn.qkv_proj.",
        ".attn.out_proj.": ".self_attn.o_proj.",
        ".ffn.": ".mlp.",
    },
    layers=None,
    only={
        "expansion_ratio": 4,
        "no_bias": True,
        "logit_scale": None,
        "norm_type": "low_precision_layernorm",
        "attn_type": "multihead_attention",
        "prefix_lm": False,
        "qk_ln": False,
        "alibi": True,
        "alibi_bias_max": 8,
    },
    read=_read,
    prefix="transformer.",
    gguf=GGUF(
        "mpt",
        keys={"attention.clamp_kqv": None, "attention.scale": None},
        read=_attention,
        written=lambda config: {"attention.max_alibi_bias": 8.0},
    ),
)
