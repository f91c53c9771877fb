"""Qwen3-Next and Qwen3.5: three layers of linear attention to one of gated attention.

Qwen 2025, 2026; the gated delta rule: arXiv 2412.06464.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from luminal.base.errors import LoadError
from luminal.base.records import dataclass
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import kinds_of, rotary_of
from luminal.models.architectures.mamba import LOGARITHMS, OF_ONE_CHANNEL, head_width
from luminal.models.architectures.qwen2 import dense_layers, shared_experts, sparse_layers
from luminal.models.architectures.settings import attention_biases, experts_of, layer_count
from luminal.models.architectures.text_part import text_part
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig, LayerConfig, Layers
from luminal.models.gguf.changes import PLUS_ONE, Change, Heads, Joined, after
from luminal.models.gguf.form import GGUF
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

    @property
    def grouping(self) -> tuple[int, int, int]:
        """Heads of keys, heads of values of each, and their features, as files lay them out."""
        return self.key_heads, self.value_heads // self.key_heads, self.key_dim

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


def _by_key_heads(qkv: Array, gate: Array, heads: Heads) -> Array:
    """Queries, keys, values and gates of one head of keys after the other."""
    groups, keys = heads.groups, heads.groups * heads.states
    parts = *np.split(qkv, (keys, 2 * keys)), gate
    split = [part.reshape(groups, -1, *part.shape[1:]) for part in parts]
    return np.concatenate(split, 1).reshape(-1, *qkv.shape[1:])


def _by_kinds(whole: Array, heads: Heads) -> tuple[Array, Array]:
    """The inverse: all queries, keys and values, and all gates."""
    split, keys = whole.reshape(heads.groups, -1, *whole.shape[1:]), heads.states
    ends = keys, 2 * keys, (split.shape[1] + 2 * keys) // 2
    q, k, v, gate = (part.reshape(-1, *whole.shape[1:]) for part in np.split(split, ends, 1))
    return np.concatenate((q, k, v)), gate


# Heads of values lie by their heads of keys in folders. Files have the first ones of all heads of
# keys, then the second ones: keys are repeated as a whole there.
def _by_first(array: Array, heads: Heads) -> Array:
    split = array.reshape(heads.groups, heads.members, -1, *array.shape[1:])
    return split.swapaxes(0, 1).reshape(array.shape)


def _by_groups(array: Array, heads: Heads) -> Array:
    split = array.reshape(heads.members, heads.groups, -1, *array.shape[1:])
    return split.swapaxes(0, 1).reshape(array.shape)


def _of_values(move: Callable[[Array, Heads], Array]) -> Callable[[Array, Heads], Array]:
    """Moves the rows that are of values, behind those of queries and keys."""

    def moved(array: Array, heads: Heads) -> Array:
        rest, values = np.split(array, [2 * heads.groups * heads.states])
        return np.concatenate((rest, move(values, heads)))

    return moved


def _of_columns(move: Callable[[Array, Heads], Array]) -> Callable[[Array, Heads], Array]:
    return lambda array, heads: move(array.T, heads).T


_ROWS = Change(_by_groups, _by_first)
_VALUES = Change(_of_values(_by_groups), _of_values(_by_first))
_LATER: Mapping[str, Any] = {
    "names": {"self_attn.in_proj_b": "ssm_beta", "self_attn.in_proj_a": "ssm_alpha"},
    "changes": {
        **dict.fromkeys(("attn_gate", "ssm_alpha", "ssm_beta", "ssm_dt.bias"), _ROWS),
        "attn_qkv": _VALUES,
        "ssm_a": after(LOGARITHMS, _ROWS),
        "ssm_conv1d": after(OF_ONE_CHANNEL, _VALUES),
        "ssm_out": Change(_of_columns(_by_groups), _of_columns(_by_first)),
    },
}
"""What files of Qwen3.5 have otherwise than those of Qwen3-Next."""


def _read_sizes(reader: Any) -> Mapping[str, Any]:
    more = dense_layers(reader) if reader.has_tensor("ffn_gate_inp.weight") else {}
    return {"linear_value_head_dim": head_width(reader), **more, **reader.further_layers()}


def _written(config: DecoderConfig) -> Mapping[str, Any]:
    mixers = [layer.mixer for layer in config.layers]
    delta = next(mixer for mixer in mixers if mixer is not None)
    assert isinstance(delta, DeltaConfig)
    turned = next((layer.rotary for layer in config.layers if layer.rotary is not None), None)
    pairs = (turned.dims or 0) // 2 if turned is not None else 0
    third = -(-pairs // 3)  # of text the position along all three axes is the same
    return {
        "ssm.conv_kernel": delta.width,
        "ssm.inner_size": delta.value_heads * delta.value_dim,
        "ssm.state_size": delta.key_dim,
        "ssm.time_step_rank": delta.value_heads,
        "ssm.group_count": delta.key_heads,
        "full_attention_interval": [*mixers, None].index(None) + 1,
        "rope.dimension_sections": [third, min(third, pairs - third), max(pairs - 2 * third, 0), 0],
    }


def _form(name: str, model_type: str, names: Any, changes: Any, **more: Any) -> GGUF:
    norms = ("attn_norm", "post_attention_norm", "output_norm", "attn_q_norm", "attn_k_norm")
    return GGUF(
        name,
        model_type,
        keys={
            "full_attention_interval": "full_attention_interval",
            "expert_count": "num_experts",
            "expert_used_count": "num_experts_per_tok",
            "expert_feed_forward_length": "moe_intermediate_size",
            "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
            "expert_weights_norm": "norm_topk_prob",
            "ssm.conv_kernel": "linear_conv_kernel_dim",
            "ssm.state_size": "linear_key_head_dim",
            "ssm.group_count": "linear_num_key_heads",
            "ssm.time_step_rank": "linear_num_value_heads",
        },
        names={
            "post_attention_layernorm": "post_attention_norm",
            "self_attn.in_proj_qkv": "attn_qkv",
            "self_attn.in_proj_z": "attn_gate",
            "self_attn.conv1d": "ssm_conv1d",
            "self_attn.dt_bias": "ssm_dt.bias",
            "self_attn.A_log": "ssm_a",
            "self_attn.norm": "ssm_norm",
            "self_attn.out_proj": "ssm_out",
            **names,
        },
        changes={**dict.fromkeys(norms, PLUS_ONE), **changes},
        read=_read_sizes,
        written=_written,
        **more,
    )


QWEN3_NEXT = Architecture(
    "Qwen3NextForCausalLM",
    {
        **attention_biases(),
        "norm": "zero_centered_rms",
        "qk_norm": "head",
        "attention_gate": True,
        "experts": _experts,
    },
    {
        **{
            f".linear_attn.{part}": f".self_attn.{part}"
            for part in ("in_proj_", "conv1d.", "dt_bias", "A_log", "norm.", "out_proj.")
        },
        ".shared_expert.": ".shared_experts.",
    },
    layers=_layers,
    only={"hidden_act": "silu"},
    read=_read,
    further_layers=True,
    divided=_divided,
    gguf=_form(
        "qwen3next",
        "qwen3_next",
        names={"self_attn.in_proj_ba": "ssm_ba"},
        joined={
            "self_attn.in_proj_qkvz.weight": Joined(
                ("attn_qkv.weight", "attn_gate.weight"), _by_key_heads, _by_kinds
            )
        },
        changes={"ssm_conv1d": OF_ONE_CHANNEL, "ssm_a": LOGARITHMS},
    ),
)
QWEN3_5 = replace(
    QWEN3_NEXT, name="Qwen3_5ForCausalLM", gguf=_form("qwen35", "qwen3_5_text", **_LATER)
)
QWEN3_5_MOE = replace(
    QWEN3_NEXT, name="Qwen3_5MoeForCausalLM", gguf=_form("qwen35moe", "qwen3_5_moe_text", **_LATER)
)
QWEN3_5_TEXT = text_part("Qwen3_5ForConditionalGeneration", QWEN3_5)
QWEN3_5_MOE_TEXT = text_part("Qwen3_5MoeForConditionalGeneration", QWEN3_5_MOE)
