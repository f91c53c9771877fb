"""Falcon: parallel layers, few heads of keys. Almazrouei et al., arXiv 2311.16867."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layers_of, plain, refuse
from luminal.models.decoder_config import DecoderConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`; `new_decoder_architecture` (40B and later) has heads of keys, two norms.

    Falcon-RW's layers with ALiBi, whose scores are scaled after it is added, are refused.
    """
    refuse(fields, alibi=False)
    heads = fields.integer("num_attention_heads")
    hidden = fields.integer("hidden_size")
    grouped = fields.flag("new_decoder_architecture", False)
    one = fields.flag("multi_query", True) and not grouped
    bias = fields.flag("bias", False)
    parallel = "shared" if fields.flag("parallel_attn", True) else None
    if grouped:
        refuse(fields, parallel_attn=True)
        norms = fields.integer("num_ln_in_parallel_attn", 2)
        parallel = "separate" if norms == 2 else "shared"
    return decoder(
        fields,
        layers_of(fields),
        num_key_value_heads=1 if one else fields.integer("num_kv_heads", heads),
        intermediate_size=fields.integer("ffn_hidden_size", 4 * hidden),
        activation=fields.text("activation", "gelu"),
        norm_eps=fields.number("layer_norm_epsilon", 1e-5, most=1),
        parallel=parallel,
        **plain(bias),
        tie_word_embeddings=fields.flag("tie_word_embeddings", True),
    )


FALCON = Architecture(
    config,
    {
        "transformer.h.": "model.layers.",
        "transformer.word_embeddings.": "model.embed_tokens.",
        "transformer.ln_f.": "model.norm.",
        ".ln_attn.": ".input_layernorm.",
        ".ln_mlp.": ".post_attention_layernorm.",
        ".self_attention.query_key_value.": ".self_attn.qkv_proj.",
        ".self_attention.dense.": ".self_attn.o_proj.",
        ".dense_h_to_4h.": ".up_proj.",
        ".dense_4h_to_h.": ".down_proj.",
    },
    grouped=True,
)
