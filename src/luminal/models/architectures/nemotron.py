"""Nemotron: layer norms of factors 1 + weight, squared relus without gates. arXiv 2402.16819."""

from __future__ import annotations

from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of, rotary_of
from luminal.models.architectures.settings import attention_biases, epsilon, flag, text
from luminal.models.gguf.changes import PLUS_ONE
from luminal.models.gguf.form import GGUF

NEMOTRON = Architecture(
    "NemotronForCausalLM",
    {
        **attention_biases(),
        "mlp_bias": flag("mlp_bias", False),
        "activation": text("hidden_act", "relu2"),
        "gated": False,
        "norm": "zero_centered_layer",
        "norm_eps": epsilon(1e-5, "norm_eps"),
    },
    layers=lambda fields: layers_of(fields, rotary=rotary_of(fields, share=0.5)),
    gguf=GGUF(
        "nemotron",
        # Only their weights are shifted, so these have names of their own.
        names={
            "input_layernorm.weight": "attn_norm.weight",
            "post_attention_layernorm.weight": "ffn_norm.weight",
        },
        outer={"model.norm.weight": "output_norm.weight"},
        changes={f"{norm}.weight": PLUS_ONE for norm in ("attn_norm", "ffn_norm", "output_norm")},
    ),
)
