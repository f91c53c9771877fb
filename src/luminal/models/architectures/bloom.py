"""BLOOM: linear biases for positions, a norm of the embedding. arXiv 2211.05100."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layer_count, plain, refuse
from luminal.models.decoder_config import DecoderConfig, LayerConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`; older ones say `n_embed`, `num_attention_heads`, `num_hidden_layers`."""

    def named(name: str, older: str) -> str:
        return name if fields.values.get(name) is not None else older

    refuse(fields, apply_residual_connection_post_layernorm=False)
    hidden = fields.integer(named("hidden_size", "n_embed"))
    heads = fields.integer(named("n_head", "num_attention_heads"))
    return decoder(
        fields,
        (LayerConfig(),) * layer_count(fields, named("n_layer", "num_hidden_layers")),
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        max_position_embeddings=fields.integer("seq_length", 2048),
        activation="gelu_pytorch_tanh",
        norm_eps=fields.number("layer_norm_epsilon", 1e-5, most=1),
        **plain(True),
        positions="alibi",
        embedding_norm=True,
        tie_word_embeddings=fields.flag("tie_word_embeddings", True),
    )


BLOOM = Architecture(
    config,
    {
        "transformer.": "",
        "word_embeddings.": "model.embed_tokens.",
        "word_embeddings_layernorm.": "model.embed_norm.",
        "ln_f.": "model.norm.",
        "h.": "model.layers.",
        ".self_attention.query_key_value.": ".self_attn.qkv_proj.",
        ".self_attention.dense.": ".self_attn.o_proj.",
        ".dense_h_to_4h.": ".up_proj.",
        ".dense_4h_to_h.": ".down_proj.",
    },
    grouped=True,
)
