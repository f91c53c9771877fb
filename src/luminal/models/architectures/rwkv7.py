"""RWKV-7 as the flash-linear-attention library saves it. Peng et al., arXiv 2503.14456."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import MAX_SIZE, Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import MAX_HEADS, epsilon, layer_count
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Layers
from luminal.models.gguf.changes import Change, Heads
from luminal.models.gguf.form import GGUF
from luminal.models.rwkv7_layer import Rwkv7Block


def _head_dim(fields: Fields) -> int:
    hidden = fields.integer("hidden_size")
    width = fields.integer("head_dim", 64, most=MAX_HEADS)
    if hidden % width:
        raise LoadError(f"{fields.path}: hidden_size {hidden} is no multiple of head_dim {width}")
    return width


def _inner(fields: Fields) -> int:
    return fields.integer("intermediate_size", 4 * fields.integer("hidden_size"))


def _layers(fields: Fields) -> Layers:
    """All but the first layer read what that one gives beside its output."""
    decay = fields.integer("decay_low_rank_dim", 64)
    rate = fields.integer("a_low_rank_dim", 64)
    share = fields.integer("v_low_rank_dim", 32)
    gate = fields.integer("gate_low_rank_dim", 128)
    begun = LayerConfig(block=Rwkv7Block((decay, rate, None, gate)))
    further = LayerConfig(block=Rwkv7Block((decay, rate, share, gate)))
    return (begun, *[further] * (layer_count(fields) - 1))


def _flat(name: str, array: Array) -> Array:
    """Shares of the position before are saved as (1, 1, hidden)."""
    return array.reshape(-1) if ".x_" in name else array


_RANKS = {
    "attention.decay_lora_rank": "decay_low_rank_dim",
    "attention.iclr_lora_rank": "a_low_rank_dim",
    "attention.value_residual_mix_lora_rank": "v_low_rank_dim",
    "attention.gate_lora_rank": "gate_low_rank_dim",
}
_LONGEST = 1 << 20  # what converters write of texts, which may have any length
_LOW_RANK = {
    f"self_attn.{name}_lora.{part}": f"time_mix_{name}{number}.weight"
    for name in "wavg"
    for part, number in (("into.weight", 1), ("out.weight", 2), ("out.bias", 0))
    if (name, number) != ("g", 0)
}


def _by_head(array: Array, heads: Heads) -> Array:
    return array.reshape(heads.queries, -1)


def _vector(array: Array, heads: Heads) -> Array:
    return array.reshape(-1)


def _written(config: DecoderConfig) -> Mapping[str, Any]:
    blocks = [layer.block for layer in config.layers if isinstance(layer.block, Rwkv7Block)]
    # The first layer has no share of its own values.
    ranks = {key: rank for key, rank in zip(_RANKS, blocks[-1].ranks, strict=True) if rank}
    unread = ("head_count_kv", "key_length", "value_length")
    return {
        **{f"attention.{name}": None for name in unread},
        **ranks,
        "attention.head_count": 0,  # readers ask for the key and do not use it
        "context_length": _LONGEST,
        "wkv.head_size": config.head_dim,
    }


RWKV7 = Architecture(
    "RWKV7ForCausalLM",
    {
        "intermediate_size": _inner,
        "num_attention_heads": lambda fields: fields.integer("hidden_size") // _head_dim(fields),
        "num_key_value_heads": None,
        "head_dim": _head_dim,
        "max_position_embeddings": MAX_SIZE,  # a state takes no more room for a longer text
        "norm": "layer",
        "norm_eps": epsilon(1e-5, "norm_eps"),
        "embedding_norm": True,
        "passing": True,
    },
    {
        "model.embeddings.": "model.embed_tokens.",
        "model.layers.0.pre_norm.": "model.embed_norm.",
        ".attn_norm.": ".input_layernorm.",
        ".ffn_norm.": ".post_attention_layernorm.",
        ".attn.": ".self_attn.",
        ".ffn.": ".mlp.",
        ".lora.0.": ".into.",
        ".lora.2.": ".out.",
    },
    layers=_layers,
    only={"hidden_act": "sqrelu", "norm_first": True, "norm_bias": True, "attn": False},
    adapted=_flat,
    gguf=GGUF(
        "rwkv7",
        keys={
            **_RANKS,
            "feed_forward_length": "intermediate_size",
            "wkv.head_size": "head_dim",
        },
        names={
            **_LOW_RANK,
            "post_attention_layernorm": "attn_norm_2",
            "self_attn.r_proj": "time_mix_receptance",
            "self_attn.k_proj": "time_mix_key",
            "self_attn.v_proj": "time_mix_value",
            "self_attn.o_proj": "time_mix_output",
            "self_attn.g_norm": "time_mix_ln",
            "self_attn.k_k": "time_mix_k_k.weight",
            "self_attn.k_a": "time_mix_k_a.weight",
            "self_attn.r_k": "time_mix_r_k.weight",
            "mlp.x_k": "channel_mix_lerp_k.weight",
            "mlp.key": "channel_mix_key",
            "mlp.value": "channel_mix_value",
        },
        defaults={"hidden_act": "sqrelu"},
        changes={"time_mix_r_k.weight": Change(_by_head, _vector)},
        stacked={"time_mix_lerp_fused.weight": tuple(f"self_attn.x_{name}" for name in "rwkvag")},
        # What the later layers have in its place.
        copied={f"time_mix_v{number}.weight": f"time_mix_a{number}.weight" for number in range(3)},
        written=_written,
    ),
)
