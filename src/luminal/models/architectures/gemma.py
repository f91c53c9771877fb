"""Gemma 1, 2 and 3 (text). arXiv 2403.08295, 2408.00118, 2503.19786."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import NORMS_AROUND, Architecture
from luminal.models.architectures.layers import layers_of, layers_of_two_rotaries, windows_of
from luminal.models.architectures.settings import (
    TIED,
    Setting,
    attention_biases,
    number_or_none,
    text,
)
from luminal.models.architectures.text_part import text_part
from luminal.models.decoder_config import Layers
from luminal.models.gguf.changes import PLUS_ONE
from luminal.models.gguf.form import ANY_LAYER, GGUF

_GELU = "gelu_pytorch_tanh"


def _first_activation(fields: Fields) -> str:
    """The `hidden_act` "gelu" of Gemma 1 means that by tanh."""
    activation = fields.text("hidden_act", _GELU)
    # The first files named the exact function, but the model was trained with tanh's; transformers
    # corrects them in the same way.
    return _GELU if activation == "gelu" else activation


def _query_scale(fields: Fields) -> float:
    return float(fields.number("query_pre_attn_scalar", 256) ** -0.5)


def _layers_of_gemma3(fields: Fields) -> Layers:
    """Five layers of six slide, and turn by angles of their own."""
    pattern = fields.integer("sliding_window_pattern", 6)
    near = Fields({"rope_theta": fields.number("rope_local_base_freq", 1e4)}, fields.path)
    return layers_of_two_rotaries(fields, lambda layer: (layer + 1) % pattern != 0, near, 1e6)


_FIRST: Mapping[str, Any] = {
    **attention_biases(),
    **TIED,
    "norm": "zero_centered_rms",
    "embedding_scale": lambda fields: math.sqrt(fields.integer("hidden_size")),
}
_LATER: Mapping[str, Any] = {
    **_FIRST,
    "activation": text("hidden_activation", _GELU),
    "norm_place": "both",
    "query_scale": Setting("query_pre_attn_scalar", _query_scale),
}
_CAP = "final_logit_softcapping"
_CAUSAL = {"use_bidirectional_attention": False}


def _form(name: str, model_type: str = "", largest: int | None = None, **more: Any) -> GGUF:
    """Files have 1 + weight of the norms, as a plain RMS norm multiplies. `largest`: the layers
    of the one model whose scale of queries is not that of a head's width, which they do not say.
    """

    def query_scalar(reader: Any) -> Mapping[str, Any]:
        # Three generations of files: newer ones say the scale. Of older ones the largest model
        # alone scales by the width that its heads would have if they divided the model's.
        scale = reader.number("attention.scale")
        width = reader.integer("embedding_length") // reader.integer("attention.head_count")
        if scale is not None:
            scalar = round(scale**-2)
        elif reader.integer("block_count") == largest:
            scalar = width
        else:
            scalar = reader.integer("attention.key_length", width)
        return {"query_pre_attn_scalar": scalar}

    norms = ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm", "output_norm")
    return GGUF(
        name,
        model_type,
        keys={"attention.scale": None},
        changes=dict.fromkeys((*norms, "attn_q_norm", "attn_k_norm"), PLUS_ONE),
        defaults={"hidden_activation": _GELU},
        read=None if largest is None else query_scalar,
        **more,
    )


GEMMA = Architecture(
    "GemmaForCausalLM",
    {**_FIRST, "activation": _first_activation},
    only=_CAUSAL,
    gguf=_form("gemma"),
)
GEMMA2 = Architecture(
    "Gemma2ForCausalLM",
    {
        **_LATER,
        "attention_softcap": number_or_none("attn_logit_softcapping", 50),
        "logit_softcap": number_or_none(_CAP, 30),
    },
    NORMS_AROUND,
    layers=lambda fields: layers_of(fields, windows_of(fields, lambda layer: layer % 2 == 0)),
    only=_CAUSAL,
    gguf=_form("gemma2", largest=46, windowed=ANY_LAYER, windows=2),
)
GEMMA3 = Architecture(
    "Gemma3ForCausalLM",
    {**_LATER, "qk_norm": "head", "logit_softcap": number_or_none(_CAP)},
    NORMS_AROUND,
    layers=_layers_of_gemma3,
    only=_CAUSAL,
    gguf=_form("gemma3", "gemma3_text", largest=62, windowed=ANY_LAYER, windows=6, local_theta=1e4),
)
GEMMA3_TEXT = text_part(
    "Gemma3ForConditionalGeneration",
    GEMMA3,
    "gemma3:GEMMA3",
    vocab_size=262208,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=256,
)
