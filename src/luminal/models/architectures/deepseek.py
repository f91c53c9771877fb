"""DeepSeek-V2 and V3, Kimi K2: latent attention, experts by groups.

arXiv 2405.04434, 2412.19437, 2507.20534.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.loaders.fields import Fields
from luminal.loaders.gguf import decimal
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.glm import ROUTED_KEYS, sigmoid_experts
from luminal.models.architectures.layers import later, rotary_of
from luminal.models.architectures.settings import (
    attention_biases,
    integer,
    layer_count,
    number,
    refuse,
)
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Layers
from luminal.models.gguf.changes import Joined
from luminal.models.gguf.form import GGUF
from luminal.nn import RotaryEmbedding
from luminal.nn.latent_attention import LatentAttention
from luminal.nn.moe import Groups


@dataclass(frozen=True, slots=True)
class LatentConfig:
    """Sizes of a `LatentAttention`."""

    plain: int
    kv_rank: int
    value_dim: int
    q_rank: int | None
    scale: float

    def make(self, config: DecoderConfig, rotary: RotaryEmbedding | None, dtype: Any) -> Any:
        """The attention of one layer."""
        if rotary is None:
            raise InputError("latent attention: the layer has no rotary embedding; give it one")
        return LatentAttention(
            config.hidden_size,
            config.num_attention_heads,
            rotary,
            self.plain,
            self.kv_rank,
            self.value_dim,
            self.q_rank,
            config.attention_bias,
            dtype,
            scale=self.scale,
        )


LATENT: Mapping[str, Any] = {
    **attention_biases(),
    "num_key_value_heads": None,
    "head_dim": lambda fields: fields.integer("qk_rope_head_dim", 64),
}
"""What models with latent attention have in common."""


def latent_layers(fields: Fields, interleaved: bool = True) -> Layers:
    """Layers with latent attention, all with the same sizes."""
    turned = fields.integer("qk_rope_head_dim", 64)
    plain = fields.integer("qk_nope_head_dim", 128)
    rotary = rotary_of(fields, interleaved=interleaved, width=turned)
    scaling = rotary.scaling or {}
    # YaRN sharpens scores of long texts (arXiv 2309.00071). DeepSeek takes that into the scale of
    # queries and keys, once for each of the two, hence the square.
    sharper = scaling.get("mscale_all_dim") or 0.0
    factor = max(scaling.get("factor", 1.0), 1.0)
    mixer = LatentConfig(
        plain,
        fields.integer("kv_lora_rank", 512),
        fields.integer("v_head_dim", 128),
        # The key is there with null in small models, which have one matrix for the queries.
        None if fields.values.get("q_lora_rank") is None else fields.integer("q_lora_rank"),
        (plain + turned) ** -0.5 * (0.1 * sharper * math.log(factor) + 1) ** 2,
    )
    return (LayerConfig(rotary=rotary, mixer=mixer),) * layer_count(fields)


def _sparse(fields: Fields, interleaved: bool) -> Layers:
    """All layers but the first ones have experts."""
    first = fields.integer("first_k_dense_replace", 0, least=0)
    return later(latent_layers(fields, interleaved), first, experts=True)


def _groups(fields: Fields) -> Groups | None:
    """In V2, a group is as good as its best expert."""
    if fields.text("topk_method", "greedy") == "group_limited_greedy":
        return Groups(fields.integer("n_group"), fields.integer("topk_group"))
    refuse(fields, topk_method="greedy")
    return None


def _shared_size(fields: Fields) -> int:
    width = fields.integer("moe_intermediate_size")
    return width * fields.integer("n_shared_experts", 2, least=0)


def read_latent(reader: Any, *value_length: int) -> dict[str, Any]:
    """Sizes of latent attention; newer files describe what they keep of a token as a head.

    `value_length`: of a head, where a file does not say it.
    """
    # Files since 2025 store latent attention as attention with one head of keys, which has the
    # latent's width; the widths of real heads then have keys of their own.
    suffix = "_mla" if reader.key("attention.key_length_mla") in reader.fields.values else ""
    whole = reader.integer(f"attention.key_length{suffix}")
    values = reader.integer(f"attention.value_length{suffix}", *value_length)
    rope = reader.rope()
    rope.pop("partial_rotary_factor", None)  # the features that turn are no part of others
    groups = reader.value("expert_group_count") or 1
    sizes = {
        "rope_parameters": rope,
        "num_key_value_heads": reader.value("attention.head_count"),
        "q_lora_rank": reader.value("attention.q_lora_rank"),  # null means that there is none
        "qk_nope_head_dim": whole - reader.integer("rope.dimension_count"),
        "v_head_dim": values,
    }
    if reader.form.model_type == "deepseek_v2":
        sizes["topk_method"] = "group_limited_greedy" if groups != 1 else "greedy"
    return sizes


def written_latent(config: DecoderConfig) -> dict[str, Any]:
    """The metadata of a file that has whole keys and values, without `_mla`."""
    mixer, rotary = config.layers[0].mixer, config.layers[0].rotary
    assert isinstance(mixer, LatentConfig)
    assert rotary is not None
    assert rotary.dims is not None
    said: dict[str, Any] = {
        "attention.key_length": mixer.plain + rotary.dims,
        "attention.value_length": mixer.value_dim,
        "attention.kv_lora_rank": mixer.kv_rank,
    }
    if mixer.q_rank is not None:
        said["attention.q_lora_rank"] = mixer.q_rank
    sharper = (rotary.scaling or {}).get("mscale_all_dim")
    if sharper:
        said["rope.scaling.yarn_log_multiplier"] = decimal(0.1 * sharper)
    return said


# Newer GGUF files hold the halves of this matrix apart, keys transposed, since their reader absorbs
# them into queries and values. Here the model does that, from the whole one.
_KEYS_AND_VALUES = Joined(
    ("attn_k_b.weight", "attn_v_b.weight"),
    lambda keys, values, heads: np.concatenate((keys.swapaxes(1, 2), values), 1).reshape(
        -1, values.shape[2]
    ),
    None,
)


LATENT_KEYS: Mapping[str, str] = {
    "attention.q_lora_rank": "q_lora_rank",
    "attention.kv_lora_rank": "kv_lora_rank",
    "rope.dimension_count": "qk_rope_head_dim",
}
LATENT_NAMES: Mapping[str, str] = {
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
}
"""Keys and names of latent attention in GGUF files."""


def _form(model_type: str, **more: Any) -> GGUF:
    return GGUF(
        "deepseek2",
        model_type,
        keys={**ROUTED_KEYS, **LATENT_KEYS},
        names=LATENT_NAMES,
        joined={"self_attn.kv_b_proj.weight": _KEYS_AND_VALUES},
        read=read_latent,
        written=written_latent,
        **more,
    )


DEEPSEEK3 = Architecture(
    "DeepseekV3ForCausalLM",
    LATENT,
    layers=lambda fields: _sparse(fields, fields.flag("rope_interleave", True)),
    experts=sigmoid_experts(2.5),
    only={"scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1},
    further_layers=True,
    gguf=_form(
        "deepseek_v3",
        defaults={
            "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
            "routed_scaling_factor": 1.0,
        },
        only_with=("expert_gating_func=2",),
    ),
)
DEEPSEEK2 = Architecture(
    "DeepseekV2ForCausalLM",
    LATENT,
    layers=lambda fields: _sparse(fields, True),
    experts={
        "count": integer("n_routed_experts"),
        "top_k": integer("num_experts_per_tok"),
        "intermediate_size": integer("moe_intermediate_size"),
        "normalize": False,
        "scale": number("routed_scaling_factor", 1.0),
        "groups": _groups,
        "shared_size": _shared_size,
    },
    only={
        "mlp_bias": False,
        "scoring_func": "softmax",
        "norm_topk_prob": False,
        "moe_layer_freq": 1,
    },
    gguf=_form("deepseek_v2", only_without=("expert_gating_func=2",)),
)
