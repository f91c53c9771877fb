"""Decoders whose layers have experts, and DeepSeek's of latent attention."""

from __future__ import annotations

from luminal.loaders.gguf_models.architecture import ALL_LAYERS, ANY_LAYER, GGUFArchitecture
from luminal.loaders.gguf_models.names import (
    ATTENTION,
    BIASES,
    GATED,
    GRANITE_KEYS,
    INTERLEAVED,
    LLAMA,
    NAMES,
    NORMS_BEFORE,
    OWN_HEADS,
    QK_NORMS,
    RMS,
)
from luminal.loaders.gguf_models.rearranged import (
    GATE_BIASES_IN_TURN,
    GATES_FIRST,
    GATES_IN_TURN,
    KEYS_AND_VALUES,
    ONE_ROW,
    TRANSPOSED_EXPERTS,
)

_EXPERTS = {"expert_used_count": "num_experts_per_tok"}
_WEIGHTS_NORM = {"expert_weights_norm": "norm_topk_prob"}
_QWEN_EXPERTS = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.*.gate_proj": "ffn_gate_exps",
    "mlp.experts.*.down_proj": "ffn_down_exps",
    "mlp.experts.*.up_proj": "ffn_up_exps",
}
_ROUTED_KEYS = {
    **_EXPERTS,
    **_WEIGHTS_NORM,
    "leading_dense_block_count": "first_k_dense_replace",
    "expert_count": "n_routed_experts",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_count": "n_shared_experts",
    "expert_weights_scale": "routed_scaling_factor",
    "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group",
}
_SHARED_EXPERTS = {
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
}
_CORRECTION = {"mlp.gate.e_score_correction_bias": "exp_probs_b.bias"}
_LATENT_KEYS = {
    **{key: name for key, name in RMS.items() if key != "attention.head_count_kv"},
    **_ROUTED_KEYS,
    "attention.q_lora_rank": "q_lora_rank",
    "attention.kv_lora_rank": "kv_lora_rank",
    "rope.dimension_count": "qk_rope_head_dim",
}
_LATENT_LAYERS = {
    **LLAMA,
    **_QWEN_EXPERTS,
    **_SHARED_EXPERTS,
    **_CORRECTION,
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
}

ARCHITECTURES: tuple[GGUFArchitecture, ...] = (
    GGUFArchitecture(
        "MixtralForCausalLM",
        "llama",
        "mixtral",
        OWN_HEADS | _EXPERTS | {"expert_count": "num_local_experts"},
        LLAMA
        | {
            "block_sparse_moe.gate": "ffn_gate_inp",
            "block_sparse_moe.experts.*.w1": "ffn_gate_exps",
            "block_sparse_moe.experts.*.w2": "ffn_down_exps",
            "block_sparse_moe.experts.*.w3": "ffn_up_exps",
        },
        NAMES,
        changes=INTERLEAVED,
        only_with="expert_count",
        windowed=ALL_LAYERS,
    ),
    GGUFArchitecture(
        "Qwen3MoeForCausalLM",
        "qwen3moe",
        "qwen3_moe",
        OWN_HEADS
        | _EXPERTS
        | {
            "expert_count": "num_experts",
            "expert_feed_forward_length": "moe_intermediate_size",
            **_WEIGHTS_NORM,
        },
        LLAMA | QK_NORMS | _QWEN_EXPERTS,
        NAMES,
        flags=BIASES,
        defaults={"norm_topk_prob": True},
        windowed=ALL_LAYERS,
    ),
    GGUFArchitecture(
        "OlmoeForCausalLM",
        "olmoe",
        "olmoe",
        RMS | _EXPERTS | {"expert_count": "num_experts", **_WEIGHTS_NORM},
        ATTENTION | NORMS_BEFORE | QK_NORMS | _QWEN_EXPERTS,
        NAMES,
        flags=BIASES,
    ),
    GGUFArchitecture(
        "Qwen2MoeForCausalLM",
        "qwen2moe",
        "qwen2_moe",
        RMS
        | _EXPERTS
        | {
            "expert_count": "num_experts",
            "expert_feed_forward_length": "moe_intermediate_size",
            "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
            **_WEIGHTS_NORM,
        },
        LLAMA
        | _QWEN_EXPERTS
        | {
            "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
            "mlp.shared_expert.up_proj": "ffn_up_shexp",
            "mlp.shared_expert.down_proj": "ffn_down_shexp",
            "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
        },
        NAMES,
        flags={"qkv_bias": "attn_q.bias"},
        changes={"ffn_gate_inp_shexp": ONE_ROW},
        windowed=ANY_LAYER,
    ),
    GGUFArchitecture(
        "GraniteMoeForCausalLM",
        "granitemoe",
        "granitemoe",
        GRANITE_KEYS | _EXPERTS | {"expert_count": "num_local_experts"},
        NORMS_BEFORE
        | ATTENTION
        | {
            "block_sparse_moe.router.layer": "ffn_gate_inp",
            "block_sparse_moe.output_linear": "ffn_down_exps",
        },
        NAMES,
        flags=BIASES,
        changes=INTERLEAVED,
        joined={"block_sparse_moe.input_linear.weight": GATES_FIRST},
    ),
    GGUFArchitecture(
        "GptOssForCausalLM",
        "gpt-oss",
        "gpt_oss",
        OWN_HEADS | _EXPERTS | {"expert_count": "num_local_experts"},
        {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "post_attention_norm",
            **ATTENTION,
            "self_attn.sinks": "attn_sinks.weight",
            "mlp.router": "ffn_gate_inp",
            "mlp.experts.down_proj": "ffn_down_exps.weight",
            "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
        },
        NAMES,
        flags=BIASES,
        changes={"ffn_down_exps.weight": TRANSPOSED_EXPERTS},
        joined={
            "mlp.experts.gate_up_proj": GATES_IN_TURN,
            "mlp.experts.gate_up_proj_bias": GATE_BIASES_IN_TURN,
        },
        rope={"truncate": False},
        windowed=ANY_LAYER,
        windows=2,
    ),
    GGUFArchitecture(
        "DeepseekV3ForCausalLM",
        "deepseek2",
        "deepseek_v3",
        _LATENT_KEYS,
        _LATENT_LAYERS,
        NAMES,
        flags={"attention_bias": "attn_q_a.bias"},
        defaults={
            "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
            "routed_scaling_factor": 1.0,
        },
        joined={"self_attn.kv_b_proj.weight": KEYS_AND_VALUES},
        only_with="expert_gating_func=2",
    ),
    GGUFArchitecture(
        "DeepseekV2ForCausalLM",
        "deepseek2",
        "deepseek_v2",
        _LATENT_KEYS,
        _LATENT_LAYERS,
        NAMES,
        flags={"attention_bias": "attn_q_a.bias"},
        joined={"self_attn.kv_b_proj.weight": KEYS_AND_VALUES},
    ),
    GGUFArchitecture(
        "Glm4MoeForCausalLM",
        "glm4moe",
        "glm4_moe",
        OWN_HEADS | _ROUTED_KEYS,
        {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "post_attention_norm",
            **ATTENTION,
            **GATED,
            **QK_NORMS,
            **_QWEN_EXPERTS,
            **_SHARED_EXPERTS,
            **_CORRECTION,
        },
        NAMES,
        flags={**BIASES, "use_qk_norm": "attn_q_norm.weight"},
    ),
    GGUFArchitecture(
        "Ernie4_5_MoeForCausalLM",
        "ernie4_5-moe",
        "ernie4_5_moe",
        OWN_HEADS
        | {
            "expert_count": "moe_num_experts",
            "expert_used_count": "moe_k",
            "expert_feed_forward_length": "moe_intermediate_size",
            "expert_shared_count": "moe_num_shared_experts",
            "leading_dense_block_count": "moe_layer_start_index",
            "interleave_moe_layer_step": "moe_layer_interval",
        },
        {
            **LLAMA,
            **_QWEN_EXPERTS,
            **_SHARED_EXPERTS,
            "mlp.moe_statics.e_score_correction_bias": "exp_probs_b.bias",
        },
        NAMES,
        flags={"use_bias": "attn_q.bias"},
        changes={"exp_probs_b.bias": ONE_ROW},
    ),
)
