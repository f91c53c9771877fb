"""Phi-1, 1.5 and 2: parallel layers with one norm, partly rotary. arXiv 2306.11644, 2309.05463."""

from __future__ import annotations

from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of, rotary_of
from luminal.models.architectures.settings import epsilon, plain, text
from luminal.models.gguf.form import GGUF

PHI = Architecture(
    "PhiForCausalLM",
    {
        **plain(bias=True),
        "activation": text("hidden_act", "gelu_new"),
        "norm_eps": epsilon(1e-5, "layer_norm_eps"),
        "parallel": "shared",
        "head_bias": True,
    },
    {
        ".self_attn.dense.": ".self_attn.o_proj.",
        ".final_layernorm.": ".norm.",
        ".fc1.": ".up_proj.",
        ".fc2.": ".down_proj.",
    },
    layers=lambda fields: layers_of(fields, rotary=rotary_of(fields, share=0.5)),
    only={"qk_layernorm": False, "tie_word_embeddings": False},
    gguf=GGUF("phi2", "phi"),
)
