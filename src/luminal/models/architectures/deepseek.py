"""DeepSeek-V2 and V3, Kimi K2: latent attention, experts by groups.

arXiv 2405.04434, 2412.19437, 2507.20534.
"""

from __future__ import annotations

import math
from typing import Any

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.glm import sigmoid_experts
from luminal.models.architectures.settings import decoder, later, layer_count, refuse, rotary_of
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig, LayerConfig
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


def latent_decoder(fields: Fields, interleaved: bool, **changes: Any) -> DecoderConfig:
    """A decoder with latent attention in every layer, and experts but for the first layers."""
    turned = fields.integer("qk_rope_head_dim", 64)
    plain = fields.integer("qk_nope_head_dim", 128)
    rotary = rotary_of(fields, interleaved=interleaved, width=turned)
    scaling = rotary.scaling or {}
    sharper = scaling.get("mscale_all_dim") or 0.0
    factor = max(scaling.get("factor", 1.0), 1.0)
    mixer = LatentConfig(
        plain,
        fields.integer("kv_lora_rank", 512),
        fields.integer("v_head_dim", 128),
        None if fields.values.get("q_lora_rank") is None else fields.integer("q_lora_rank"),
        (plain + turned) ** -0.5 * (0.1 * sharper * math.log(factor) + 1) ** 2,
    )
    layers = (LayerConfig(rotary=rotary, mixer=mixer),) * layer_count(fields)
    if "experts" in changes:
        refuse(fields, moe_layer_freq=1)
        layers = later(layers, fields.integer("first_k_dense_replace", 0, least=0), experts=True)
    bias = fields.flag("attention_bias", False)
    return decoder(
        fields,
        layers,
        head_dim=turned,
        num_key_value_heads=fields.integer("num_attention_heads"),
        attention_bias=bias,
        output_bias=bias,
        **changes,
    )


def config2(fields: Fields) -> DecoderConfig:
    """Of a `config.json` of V2: experts by softmax; a group is as good as its best expert."""
    refuse(fields, mlp_bias=False, scoring_func="softmax", norm_topk_prob=False)
    groups = None
    if fields.text("topk_method", "greedy") == "group_limited_greedy":
        groups = Groups(fields.integer("n_group"), fields.integer("topk_group"))
    else:
        refuse(fields, topk_method="greedy")
    width = fields.integer("moe_intermediate_size")
    experts = ExpertsConfig(
        fields.integer("n_routed_experts"),
        fields.integer("num_experts_per_tok"),
        width,
        False,
        scale=fields.number("routed_scaling_factor", 1.0),
        groups=groups,
        shared_size=width * fields.integer("n_shared_experts", 2, least=0),
    )
    return latent_decoder(fields, True, experts=experts)


def config3(fields: Fields) -> DecoderConfig:
    """Of V3."""
    refuse(fields, scoring_func="sigmoid", topk_method="noaux_tc")
    interleaved = fields.flag("rope_interleave", True)
    return latent_decoder(fields, interleaved, experts=sigmoid_experts(fields, 2.5))


DEEPSEEK2 = Architecture(config2)
DEEPSEEK3 = Architecture(config3, further_layers=True)
