"""GLM-4, its later form with norms after both parts, and its experts.

arXiv 2406.12793, 2508.06471.
"""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, later, layers_of, rotary_of
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig
from luminal.nn.moe import Groups


def config(fields: Fields, norm_place: str = "before") -> DecoderConfig:
    """Of a `config.json` of GLM: neighbouring features turn, half of each head."""
    rotary = rotary_of(fields, share=0.5, interleaved=True)
    return decoder(
        fields,
        layers_of(fields, rotary=rotary),
        norm_eps=fields.number("rms_norm_eps", 1.5625e-7, most=1),
        norm_place=norm_place,
        attention_bias=fields.flag("attention_bias", True),
    )


def config_of_both_norms(fields: Fields) -> DecoderConfig:
    """Of GLM4."""
    return config(fields, "both")


def config_of_experts(fields: Fields) -> DecoderConfig:
    """Of GLM4-MoE, whose first layers have no experts."""
    layers = layers_of(fields, rotary=rotary_of(fields, share=0.5))
    return decoder(
        fields,
        later(layers, fields.integer("first_k_dense_replace", 1, least=0), experts=True),
        norm_eps=fields.number("rms_norm_eps", 1e-5, most=1),
        qk_norm="head" if fields.flag("use_qk_norm", False) else None,
        attention_bias=fields.flag("attention_bias", False),
        experts=sigmoid_experts(fields),
    )


def sigmoid_experts(fields: Fields, scale: float = 1.0) -> ExpertsConfig:
    """As of DeepSeek-V3: chosen by corrected sigmoids among the best groups; `scale`: of what they
    give, where the file has none.
    """
    width = fields.integer("moe_intermediate_size")
    return ExpertsConfig(
        fields.integer("n_routed_experts"),
        fields.integer("num_experts_per_tok", 8),
        width,
        fields.flag("norm_topk_prob", True),
        "sigmoid",
        fields.number("routed_scaling_factor", scale),
        correction=True,
        groups=Groups(fields.integer("n_group", 1), fields.integer("topk_group", 1)),
        shared_size=width * fields.integer("n_shared_experts", 1, least=0),
    )


GLM = Architecture(config)
GLM4 = Architecture(
    config_of_both_norms,
    {
        ".post_self_attn_layernorm.": ".attention_output_norm.",
        ".post_mlp_layernorm.": ".mlp_output_norm.",
    },
)
GLM4_MOE = Architecture(config_of_experts, further_layers=True)
