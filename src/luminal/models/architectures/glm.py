"""GLM-4, its later form with norms after both parts, and its experts.

arXiv 2406.12793, 2508.06471.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import later, layers_of, rotary_of
from luminal.models.architectures.settings import choice, epsilon, flag, integer, number
from luminal.models.decoder_config import Layers
from luminal.models.gguf.form import GGUF
from luminal.models.gguf.names import FUSED_GATE
from luminal.nn.moe import Groups


def _shared_size(fields: Fields) -> int:
    width = fields.integer("moe_intermediate_size")
    return width * fields.integer("n_shared_experts", 1, least=0)


def sigmoid_experts(scale: float = 1.0) -> Mapping[str, Any]:
    """The experts of DeepSeek-V3 and what followed it, chosen by corrected sigmoids among the best
    groups. `scale`: what they give is times it, where the file says nothing.
    """
    return {
        "count": integer("n_routed_experts"),
        "top_k": integer("num_experts_per_tok", 8),
        "intermediate_size": integer("moe_intermediate_size"),
        "normalize": flag("norm_topk_prob", True),
        "scoring": "sigmoid",
        "scale": number("routed_scaling_factor", scale),
        "correction": True,
        "groups": lambda fields: Groups(
            fields.integer("n_group", 1), fields.integer("topk_group", 1)
        ),
        "shared_size": _shared_size,
    }


ROUTED_KEYS = {
    "leading_dense_block_count": "first_k_dense_replace",
    "expert_weights_norm": "norm_topk_prob",
    "expert_shared_count": "n_shared_experts",
    "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group",
}
"""Further keys of such experts in GGUF files."""


def _layers(fields: Fields) -> Layers:
    """Neighbouring features turn, half of each head."""
    return layers_of(fields, rotary=rotary_of(fields, share=0.5, interleaved=True))


def _sparse_layers(fields: Fields) -> Layers:
    """The first layers have no experts."""
    layers = layers_of(fields, rotary=rotary_of(fields, share=0.5))
    return later(layers, fields.integer("first_k_dense_replace", 1, least=0), experts=True)


GLM = Architecture(
    "GlmForCausalLM",
    {"attention_bias": flag("attention_bias", True), "norm_eps": epsilon(1.5625e-7)},
    layers=_layers,
    gguf=GGUF("chatglm", "glm", names=FUSED_GATE),
)
GLM4 = Architecture(
    "Glm4ForCausalLM",
    {**GLM.settings, "norm_place": "both"},
    {
        ".post_self_attn_layernorm.": ".attention_output_norm.",
        ".post_mlp_layernorm.": ".mlp_output_norm.",
    },
    layers=_layers,
    gguf=GGUF("glm4", names=FUSED_GATE),
)
GLM4_MOE = Architecture(
    "Glm4MoeForCausalLM",
    {
        "attention_bias": flag("attention_bias", False),
        "norm_eps": epsilon(1e-5),
        "qk_norm": choice("use_qk_norm", False, "head"),
    },
    layers=_sparse_layers,
    experts=sigmoid_experts(),
    further_layers=True,
    gguf=GGUF(
        "glm4moe",
        "glm4_moe",
        keys=ROUTED_KEYS,
        names={"post_attention_layernorm": "post_attention_norm"},  # that before the experts
    ),
)
