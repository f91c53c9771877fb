"""OPT: learned positions, ReLU. Zhang et al., arXiv 2205.01068."""

from __future__ import annotations

from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import TIED, flag, integer, plain, refuse, text

FIRST_POSITION = 2  # the rows before it are for padding


def _read(fields: Fields) -> Fields:
    refuse(fields, word_embed_proj_dim=fields.integer("hidden_size"))
    return fields


def _without_padding(name: str, array: Array) -> Array:
    return array[FIRST_POSITION:] if name == "model.embed_positions.weight" else array


OPT = Architecture(
    "OPTForCausalLM",
    {
        **plain(flag("enable_bias", True)),
        **TIED,
        "intermediate_size": integer("ffn_dim"),
        "activation": text("activation_function", "relu"),
        "norm_eps": 1e-5,  # PyTorch's own, which no key says
        "positions": "learned",
    },
    {
        "model.decoder.final_layer_norm.": "model.norm.",
        "model.decoder.": "model.",
        ".self_attn_layer_norm.": ".input_layernorm.",
        ".final_layer_norm.": ".post_attention_layernorm.",
        ".out_proj.": ".o_proj.",
        ".fc1.": ".mlp.up_proj.",
        ".fc2.": ".mlp.down_proj.",
    },
    layers=None,
    only={
        "do_layer_norm_before": True,
        "_remove_final_layer_norm": False,
        "layer_norm_elementwise_affine": True,
    },
    read=_read,
    prefix="model.",
    adapted=_without_padding,
)
