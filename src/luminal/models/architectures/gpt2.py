"""GPT-2: learned positions, matrices stored transposed. Radford et al., 2019."""

from __future__ import annotations

from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import (
    MAX_LAYERS,
    TIED,
    Setting,
    epsilon,
    integer,
    plain,
    text,
)
from luminal.models.gguf.changes import Change, Heads
from luminal.models.gguf.form import GGUF


def _inner(fields: Fields) -> int:
    return fields.integer("n_inner", 4 * fields.integer("n_embd", 768))


# Its first code had Conv1D layers, whose matrices multiply from the right.
def _rows_first(name: str, array: Array) -> Array:
    """Matrices of the layers as (out, in)."""
    # Only matrices of layers: the tables of tokens and positions have a row for each, as all models
    # have.
    return array.T if name.startswith("model.layers.") and array.ndim == 2 else array


def _transposed(array: Array, heads: Heads) -> Array:
    return array.T


GPT2 = Architecture(
    "GPT2LMHeadModel",
    {
        **plain(bias=True),
        **TIED,
        "num_hidden_layers": integer("n_layer", most=MAX_LAYERS),
        "hidden_size": integer("n_embd", 768),
        "intermediate_size": Setting("n_inner", _inner),
        "num_attention_heads": integer("n_head", 12),
        "num_key_value_heads": None,
        "head_dim": None,
        "max_position_embeddings": integer("n_positions", 1024),
        "activation": text("activation_function", "gelu_new"),
        "norm_eps": epsilon(1e-5, "layer_norm_epsilon"),
        "positions": "learned",
    },
    {
        "transformer.h.": "model.layers.",
        "transformer.wte.": "model.embed_tokens.",
        "transformer.wpe.": "model.embed_positions.",
        "transformer.ln_f.": "model.norm.",
        ".ln_1.": ".input_layernorm.",
        ".ln_2.": ".post_attention_layernorm.",
        ".attn.c_attn.": ".self_attn.qkv_proj.",
        ".attn.c_proj.": ".self_attn.o_proj.",
        ".c_fc.": ".up_proj.",
        ".mlp.c_proj.": ".mlp.down_proj.",
    },
    layers=None,
    only={
        "scale_attn_weights": True,
        "add_cross_attention": False,
        "scale_attn_by_inverse_layer_idx": False,
    },
    prefix="transformer.",
    adapted=_rows_first,
    gguf=GGUF(
        "gpt2",
        changes=dict.fromkeys(
            ("attn_qkv", "attn_output", "ffn_up", "ffn_down"), Change(_transposed, _transposed)
        ),
    ),
)
