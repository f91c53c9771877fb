"""Arcee's AFM: a Llama without gates, of squared relus. Arcee AI 2025."""

from __future__ import annotations

from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import attention_biases, epsilon, flag, text
from luminal.models.gguf.changes import INTERLEAVED
from luminal.models.gguf.form import GGUF

ARCEE = Architecture(
    "ArceeForCausalLM",
    {
        **attention_biases(),
        "mlp_bias": flag("mlp_bias", False),
        "activation": text("hidden_act", "relu2"),
        "gated": False,
        "norm_eps": epsilon(1e-5),
    },
    gguf=GGUF("arcee", changes=INTERLEAVED),
)
