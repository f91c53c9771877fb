"""RWKV-7 as the flash-linear-attention library saves it. Peng et al., arXiv 2503.14456."""

from __future__ import annotations

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import MAX_SIZE, Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import MAX_HEADS, epsilon, layer_count
from luminal.models.decoder_config import LayerConfig, Layers
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
)
