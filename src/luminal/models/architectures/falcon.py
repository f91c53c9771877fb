"""Falcon: parallel layers, few heads of keys. Almazrouei et al., arXiv 2311.16867.

Models with `new_decoder_architecture` (40B and later) have several heads of keys and two norms.
"""

from __future__ import annotations

from dataclasses import replace

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import TIED, Setting, epsilon, flag, plain, refuse, text
from luminal.models.gguf.form import GGUF
from luminal.models.gguf.names import NO_HEAD_DIM


def _key_heads(fields: Fields) -> int:
    # Files of the newer form say `multi_query` too, and it means nothing there.
    if fields.flag("multi_query", True) and not fields.flag("new_decoder_architecture", False):
        return 1
    return fields.integer("num_kv_heads", fields.integer("num_attention_heads"))


def _parallel(fields: Fields) -> str | None:
    if not fields.flag("new_decoder_architecture", False):
        return "shared" if fields.flag("parallel_attn", True) else None
    refuse(fields, parallel_attn=True)
    return "separate" if fields.integer("num_ln_in_parallel_attn", 2) == 2 else "shared"


def _inner(fields: Fields) -> int:
    return fields.integer("ffn_hidden_size", 4 * fields.integer("hidden_size"))


_NAMES = {
    "transformer.h.": "model.layers.",
    "transformer.word_embeddings.": "model.embed_tokens.",
    "transformer.ln_f.": "model.norm.",
    ".self_attention.query_key_value.": ".self_attn.qkv_proj.",
    ".self_attention.dense.": ".self_attn.o_proj.",
    ".dense_h_to_4h.": ".up_proj.",
    ".dense_4h_to_h.": ".down_proj.",
}

FALCON = Architecture(
    "FalconForCausalLM",
    {
        **plain(flag("bias", False)),
        **TIED,
        "num_key_value_heads": Setting("num_kv_heads", _key_heads),
        "intermediate_size": Setting("ffn_hidden_size", _inner),
        "activation": text("activation", "gelu"),
        "norm_eps": epsilon(1e-5, "layer_norm_epsilon"),
        "parallel": _parallel,
    },
    {
        **_NAMES,
        ".ln_attn.": ".input_layernorm.",
        ".ln_mlp.": ".post_attention_layernorm.",
    },
    only={"alibi": False},  # Falcon-RW scales its scores after ALiBi is added
    grouped=True,
    gguf=GGUF(
        "falcon",
        keys=NO_HEAD_DIM,
        # Their first norm is that before the feed-forward part.
        names={"input_layernorm": "attn_norm_2", "post_attention_layernorm": "attn_norm"},
        defaults={"new_decoder_architecture": True},
        only_with=("attn_norm_2.weight",),
        only_for=lambda config: config.parallel == "separate",
    ),
)
FALCON_OF_ONE_NORM = replace(
    FALCON,
    names=_NAMES,
    gguf=GGUF(
        "falcon",
        keys=NO_HEAD_DIM,
        names={"post_attention_layernorm": None},
        defaults={"new_decoder_architecture": False, "multi_query": True},
        only_without=("attn_norm_2.weight",),
    ),
)
