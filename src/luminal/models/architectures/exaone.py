"""EXAONE 3 and 3.5: a Llama whose weights have names of their own. arXiv 2408.03541."""

from __future__ import annotations

from dataclasses import replace

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of, rotary_of
from luminal.models.architectures.settings import attention_biases, epsilon, flag
from luminal.models.gguf.form import GGUF

_OLDER = {
    "num_layers": "num_hidden_layers",
    "layer_norm_epsilon": "rms_norm_eps",
    "activation_function": "hidden_act",
}
"""Keys of the first files, and what transformers calls them."""


def _read(fields: Fields) -> Fields:
    renamed = {
        new: fields.values[old] for old, new in _OLDER.items() if fields.values.get(old) is not None
    }
    return replace(fields, values={**fields.values, **renamed})


EXAONE = Architecture(
    "ExaoneForCausalLM",
    {**attention_biases(), "mlp_bias": flag("mlp_bias", False), "norm_eps": epsilon(1e-5)},
    {
        "transformer.h.": "model.layers.",
        "transformer.wte.": "model.embed_tokens.",
        "transformer.ln_f.": "model.norm.",
        ".attn.attention.": ".self_attn.",
        ".self_attn.out_proj.": ".self_attn.o_proj.",
        ".ln_1.": ".input_layernorm.",
        ".ln_2.": ".post_attention_layernorm.",
        ".c_fc_0.": ".gate_proj.",
        ".c_fc_1.": ".up_proj.",
        ".mlp.c_proj.": ".mlp.down_proj.",
    },
    layers=lambda fields: layers_of(fields, rotary=rotary_of(fields, theta=5e5)),
    read=_read,
    gguf=GGUF("exaone"),
)
