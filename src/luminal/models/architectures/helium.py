"""Helium: a Llama that turns neighbouring features. Kyutai 2025."""

from __future__ import annotations

from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of, rotary_of
from luminal.models.architectures.settings import epsilon, flag

HELIUM = Architecture(
    "HeliumForCausalLM",
    {
        "norm_eps": epsilon(1e-8),
        "attention_bias": flag("attention_bias", False),
        "mlp_bias": flag("mlp_bias", False),
    },
    layers=lambda fields: layers_of(fields, rotary=rotary_of(fields, theta=1e5, interleaved=True)),
)
