"""Seed-OSS: a Llama whose biases are said one by one. ByteDance 2025."""

from __future__ import annotations

from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import flag
from luminal.models.gguf.form import GGUF

SEED_OSS = Architecture(
    "SeedOssForCausalLM",
    {
        "attention_bias": flag("attention_bias", True),
        "output_bias": flag("attention_out_bias", False),
        "mlp_bias": flag("mlp_bias", False),
    },
    # The norm before the feed-forward part is named like one after attention there.
    gguf=GGUF("seed_oss", names={"post_attention_layernorm": "post_attention_norm"}),
)
