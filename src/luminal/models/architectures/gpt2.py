"""GPT-2: learned positions, matrices stored transposed. Radford et al., 2019."""

from __future__ import annotations

from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layer_count, plain, refuse
from luminal.models.decoder_config import DecoderConfig, LayerConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    refuse(fields, scale_attn_weights=True, add_cross_attention=False)
    refuse(fields, scale_attn_by_inverse_layer_idx=False)
    hidden, heads = fields.integer("n_embd", 768), fields.integer("n_head", 12)
    return decoder(
        fields,
        (LayerConfig(),) * layer_count(fields, "n_layer"),
        hidden_size=hidden,
        intermediate_size=fields.integer("n_inner", 4 * hidden),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        max_position_embeddings=fields.integer("n_positions", 1024),
        activation=fields.text("activation_function", "gelu_new"),
        norm_eps=fields.number("layer_norm_epsilon", 1e-5, most=1),
        **plain(True),
        positions="learned",
        tie_word_embeddings=fields.flag("tie_word_embeddings", True),
    )


def _rows_first(name: str, array: Array) -> Array:
    """Matrices of the layers as (out, in)."""
    return array.T if name.startswith("model.layers.") and array.ndim == 2 else array


GPT2 = Architecture(
    config,
    {
        "transformer.": "",
        "h.": "model.layers.",
        "wte.": "model.embed_tokens.",
        "wpe.": "model.embed_positions.",
        "ln_f.": "model.norm.",
        ".ln_1.": ".input_layernorm.",
        ".ln_2.": ".post_attention_layernorm.",
        ".attn.c_attn.": ".self_attn.qkv_proj.",
        ".attn.c_proj.": ".self_attn.o_proj.",
        ".c_fc.": ".up_proj.",
        ".mlp.c_proj.": ".mlp.down_proj.",
    },
    adapted=_rows_first,
)
