"""Small configurations of transformers' classes, one or more for each architecture."""

from __future__ import annotations

from typing import Any, NamedTuple

VOCABULARY = 64
SPECIAL = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    **SPECIAL,
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
ROUTED = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 1.5,
    "first_k_dense_replace": 1,
}
WINDOW = {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}


class Tiny(NamedTuple):
    """A small configuration: the classes of transformers, and its options."""

    config: str
    model: str
    options: dict[str, Any]


MORE = {
    "cohere": Tiny("CohereConfig", "CohereForCausalLM", {**SIZES, "use_qk_norm": True}),
    "cohere2": Tiny("Cohere2Config", "Cohere2ForCausalLM", {**SIZES, **WINDOW}),
    "ernie4_5": Tiny("Ernie4_5Config", "Ernie4_5ForCausalLM", {**SIZES, "head_dim": 16}),
    "ernie4_5_moe": Tiny(
        "Ernie4_5_MoeConfig",
        "Ernie4_5_MoeForCausalLM",
        {**SIZES, "moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 16},
    ),
    "glm": Tiny("GlmConfig", "GlmForCausalLM", {**SIZES, "head_dim": 16}),
    "glm4": Tiny("Glm4Config", "Glm4ForCausalLM", {**SIZES, "head_dim": 16}),
    "glm4_moe": Tiny(
        "Glm4MoeConfig", "Glm4MoeForCausalLM", {**SIZES, **ROUTED, "use_qk_norm": True}
    ),
    "granite": Tiny(
        "GraniteConfig",
        "GraniteForCausalLM",
        {
            **SIZES,
            "embedding_multiplier": 3.0,
            "logits_scaling": 2.0,
            "residual_multiplier": 0.7,
            "attention_multiplier": 0.3,
        },
    ),
    "granite_moe": Tiny(
        "GraniteMoeConfig",
        "GraniteMoeForCausalLM",
        {**SIZES, "num_local_experts": 6, "residual_multiplier": 0.7, "attention_multiplier": 0.3},
    ),
    "olmo": Tiny("OlmoConfig", "OlmoForCausalLM", {**SIZES, "clip_qkv": 0.5}),
    "olmo3": Tiny("Olmo3Config", "Olmo3ForCausalLM", {**SIZES, **WINDOW}),
    "olmoe": Tiny("OlmoeConfig", "OlmoeForCausalLM", {**SIZES, **EXPERTS}),
    "qwen2_moe": Tiny(
        "Qwen2MoeConfig",
        "Qwen2MoeForCausalLM",
        {**SIZES, **EXPERTS, "shared_expert_intermediate_size": 20, "mlp_only_layers": [0]},
    ),
    "stablelm": Tiny("StableLmConfig", "StableLmForCausalLM", SIZES),
}
