"""Qwen3-Next and Qwen3.5: three layers of linear attention to one of gated attention.

Qwen 2025, 2026; the gated delta rule: arXiv 2412.06464.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from luminal.base.errors import LoadError
from luminal.base.records import dataclass
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import kinds_of, rotary_of
from luminal.models.architectures.qwen2 import shared_experts, sparse_layers
from luminal.models.architectures.settings import attention_biases, experts_of, layer_count
from luminal.models.architectures.text_part import text_part
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig, LayerConfig, Layers
from luminal.nn import RotaryEmbedding
from luminal.nn.delta_rule import GatedDeltaNet


@dataclass(frozen=True, slots=True)
class DeltaConfig:
    """Sizes of a `GatedDeltaNet`."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    width: int

    def make(
        self, config: DecoderConfig, rotary: RotaryEmbedding | None, dtype: Any
    ) -> GatedDeltaNet:
        """The mixer of one layer."""
        heads = self.key_heads, self.value_heads
        sizes = self.key_dim, self.value_dim, self.width
        return GatedDeltaNet(config.hidden_size, *heads, *sizes, config.norm_eps, dtype)


def _read(fields: Fields) -> Fields:
    """With a width of dense layers, though there need be none where there are experts."""
    width = fields.values.get("intermediate_size")
    if not width and fields.values.get("num_experts"):
        width = fields.integer("moe_intermediate_size")
    return replace(fields, values={**fields.values, "intermediate_size": width})


def _layers(fields: Fields) -> Layers:
    """Three layers of four are linear. Some models of Qwen3.5 have no experts."""
    count = layer_count(fields)
    interval = fields.integer("full_attention_interval", 4)
    kinds = kinds_of(fields, count, "full_attention", "linear_attention") or [
        "linear_attention" if (number + 1) % interval else "full_attention"
        for number in range(count)
    ]
    delta = DeltaConfig(
        fields.integer("linear_num_key_heads", 16),
        fields.integer("linear_num_value_heads", 32),
        fields.integer("linear_key_head_dim", 128),
        fields.integer("linear_value_head_dim", 128),
        fields.integer("linear_conv_kernel_dim", 4),
    )
    if delta.value_heads % delta.key_heads:
        raise LoadError(
            f"{fields.path}: {delta.value_heads} heads of values do not divide among "
            f"{delta.key_heads} of keys"
        )
    full = LayerConfig(rotary=rotary_of(fields, share=0.25))
    # Linear layers have no positions: what is earlier has decayed more.
    linear = LayerConfig(mixer=delta)
    layers = tuple(linear if kind == "linear_attention" else full for kind in kinds)
    return sparse_layers(fields, layers) if fields.values.get("num_experts") else layers


def _experts(fields: Fields) -> ExpertsConfig | None:
    has_experts = fields.values.get("num_experts")
    return experts_of(shared_experts(10, True), fields) if has_experts else None


def _divided(name: str, array: Array, config: DecoderConfig) -> Iterator[tuple[str, Array]]:
    """Rows that lie by heads, as the projections they are of."""
    path, _, part = name.rpartition(".self_attn.")
    heads, parts = 0, {}
    if part.startswith("q_proj."):
        heads = config.num_attention_heads
        parts = {"q_proj": config.head_dim, "gate_proj": config.head_dim}
    delta = next((layer.mixer for layer in config.layers if layer.mixer is not None), None)
    if part.startswith(("in_proj_qkvz.", "in_proj_ba.")) and isinstance(delta, DeltaConfig):
        heads, group = delta.key_heads, delta.value_heads // delta.key_heads
        values = group * delta.value_dim
        parts = {"in_proj_b": group, "in_proj_a": group}
        if part.startswith("in_proj_qkvz."):
            parts = {"q": delta.key_dim, "k": delta.key_dim, "v": values, "in_proj_z": values}
    if not parts:
        yield name, array
        return
    sizes = list(parts.values())
    if array.shape[0] != heads * sum(sizes):
        raise LoadError(
            f"weights: {name!r} has {array.shape[0]} rows, the configuration asks for "
            f"{heads * sum(sizes)}"
        )
    # Rows of one head of keys: its own, and those of the heads of values that share it.
    cut = np.split(array.reshape(heads, sum(sizes), *array.shape[1:]), np.cumsum(sizes)[:-1], 1)
    divided = {
        key: rows.reshape(-1, *array.shape[1:]) for key, rows in zip(parts, cut, strict=True)
    }
    # One convolution runs over queries, keys and values, so these three stay one matrix.
    if "q" in divided:
        divided["in_proj_qkv"] = np.concatenate([divided.pop(key) for key in "qkv"])
    last = part.rpartition(".")[2]
    for key, rows in divided.items():
        yield f"{path}.self_attn.{key}.{last}", rows


QWEN3_NEXT = Architecture(
    "Qwen3NextForCausalLM",
    {
        **attention_biases(),
        "norm": "zero_centered_rms",
        "qk_norm": "head",
        "attention_gate": True,
        "experts": _experts,
    },
    {".linear_attn.": ".self_attn.", ".shared_expert.": ".shared_experts."},
    layers=_layers,
    only={"hidden_act": "silu"},
    read=_read,
    further_layers=True,
    divided=_divided,
)
QWEN3_5 = replace(QWEN3_NEXT, name="Qwen3_5ForCausalLM")
QWEN3_5_MOE = replace(QWEN3_NEXT, name="Qwen3_5MoeForCausalLM")
QWEN3_5_TEXT = text_part("Qwen3_5ForConditionalGeneration", QWEN3_5)
QWEN3_5_MOE_TEXT = text_part("Qwen3_5MoeForConditionalGeneration", QWEN3_5_MOE)
