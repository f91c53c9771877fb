"""StableLM: layer norms, partly rotary, gated. Bellagente et al., arXiv 2402.17834."""

from __future__ import annotations

from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of, rotary_of
from luminal.models.architectures.settings import choice, epsilon, flag
from luminal.models.gguf.form import GGUF
from luminal.models.gguf.names import NO_HEAD_DIM

STABLELM = Architecture(
    "StableLmForCausalLM",
    {
        "attention_bias": flag("use_qkv_bias", False),
        "norm": "layer",
        "norm_eps": epsilon(1e-5, "layer_norm_eps"),
        "parallel": choice("use_parallel_residual", False, "shared"),
    },
    layers=lambda fields: layers_of(fields, rotary=rotary_of(fields, share=0.25)),
    only={"qk_layernorm": False},
    gguf=GGUF("stablelm", keys=NO_HEAD_DIM),
)
