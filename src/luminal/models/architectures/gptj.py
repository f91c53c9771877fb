"""GPT-J: parallel layers with one norm, neighbouring features turn. Wang and Komatsuzaki, 2021."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of
from luminal.models.architectures.settings import (
    MAX_HEADS,
    MAX_LAYERS,
    epsilon,
    integer,
    plain,
    text,
)
from luminal.models.decoder_config import Layers, Rotary


def _inner(fields: Fields) -> int:
    return fields.integer("n_inner", 4 * fields.integer("n_embd", 4096))


def _layers(fields: Fields) -> Layers:
    """The first features of a head turn, by the angles of so many."""
    dims = fields.integer("rotary_dim", 64, most=MAX_HEADS)
    return layers_of(fields, rotary=Rotary(dims=dims, interleaved=True))


GPTJ = Architecture(
    "GPTJForCausalLM",
    {
        **plain(bias=False),
        "num_hidden_layers": integer("n_layer", 28, most=MAX_LAYERS),
        "hidden_size": integer("n_embd", 4096),
        "intermediate_size": _inner,
        "num_attention_heads": integer("n_head", 16, most=MAX_HEADS),
        "num_key_value_heads": None,
        "head_dim": None,
        "max_position_embeddings": integer("n_positions", 2048),
        "activation": text("activation_function", "gelu_new"),
        "norm_eps": epsilon(1e-5, "layer_norm_epsilon"),
        "parallel": "shared",
        "mlp_bias": True,
        "head_bias": True,
    },
    {
        "transformer.h.": "model.layers.",
        "transformer.wte.": "model.embed_tokens.",
        "transformer.ln_f.": "model.norm.",
        ".ln_1.": ".input_layernorm.",
        ".attn.": ".self_attn.",
        ".self_attn.out_proj.": ".self_attn.o_proj.",
        ".fc_in.": ".up_proj.",
        ".fc_out.": ".down_proj.",
    },
    layers=_layers,
    only={"tie_word_embeddings": False},
    prefix="transformer.",
)
