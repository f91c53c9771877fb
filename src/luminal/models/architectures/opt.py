"""OPT: learned positions, ReLU. Zhang et al., arXiv 2205.01068."""

from __future__ import annotations

from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layer_count, plain, refuse
from luminal.models.decoder_config import DecoderConfig, LayerConfig

FIRST_POSITION = 2  # the rows before it are for padding


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    refuse(
        fields,
        do_layer_norm_before=True,
        _remove_final_layer_norm=False,
        layer_norm_elementwise_affine=True,
        word_embed_proj_dim=fields.integer("hidden_size"),
    )
    bias = fields.flag("enable_bias", True)
    return decoder(
        fields,
        (LayerConfig(),) * layer_count(fields),
        intermediate_size=fields.integer("ffn_dim"),
        activation=fields.text("activation_function", "relu"),
        norm_eps=1e-5,
        **plain(bias),
        positions="learned",
        tie_word_embeddings=fields.flag("tie_word_embeddings", True),
    )


def _without_padding(name: str, array: Array) -> Array:
    return array[FIRST_POSITION:] if name == "model.embed_positions.weight" else array


OPT = Architecture(
    config,
    {
        "decoder.": "model.decoder.",  # in older files
        "model.decoder.final_layer_norm.": "model.norm.",
        "model.decoder.": "model.",
        ".self_attn_layer_norm.": ".input_layernorm.",
        ".final_layer_norm.": ".post_attention_layernorm.",
        ".out_proj.": ".o_proj.",
        ".fc1.": ".mlp.up_proj.",
        ".fc2.": ".mlp.down_proj.",
    },
    adapted=_without_padding,
)
