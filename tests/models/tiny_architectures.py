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
UNGROUPED = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}
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
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 12,
    "q_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
WINDOW = {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}


DELTA = {
    "head_dim": 16,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 5,
}
HYBRID = {
    "mamba_n_heads": 8,
    "mamba_d_state": 6,
    "mamba_n_groups": 2,
    "mamba_chunk_size": 8,
}
STATES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "state_size": 6,
    **SPECIAL,
}


class Tiny(NamedTuple):
    """A small configuration: the classes of transformers, and its options.

    `published`: the class that published files name, where transformers saves that of a relative.
    """

    config: str
    model: str
    options: dict[str, Any]
    published: str = ""

    @property
    def record(self) -> str:
        """The class that the folder names."""
        return self.published or self.model


TINY = {
    "llama": Tiny("LlamaConfig", "LlamaForCausalLM", SIZES),
    "mistral": Tiny("MistralConfig", "MistralForCausalLM", {**SIZES, "sliding_window": 6}),
    "qwen2": Tiny(
        "Qwen2Config",
        "Qwen2ForCausalLM",
        {**SIZES, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "qwen3": Tiny("Qwen3Config", "Qwen3ForCausalLM", {**SIZES, "head_dim": 16}),
    "gemma": Tiny("GemmaConfig", "GemmaForCausalLM", {**SIZES, "head_dim": 16}),
    "gemma2": Tiny(
        "Gemma2Config",
        "Gemma2ForCausalLM",
        {
            **SIZES,
            "head_dim": 16,
            "sliding_window": 6,
            "query_pre_attn_scalar": 24,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": Tiny(
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {
            **SIZES,
            "head_dim": 16,
            "sliding_window": 6,
            "query_pre_attn_scalar": 24,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "phi3": Tiny("Phi3Config", "Phi3ForCausalLM", {**SIZES, "sliding_window": 9}),
    "gpt2": Tiny(
        "GPT2Config",
        "GPT2LMHeadModel",
        {
            "vocab_size": VOCABULARY,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 64,
            **SPECIAL,
        },
    ),
    "gpt_neox": Tiny("GPTNeoXConfig", "GPTNeoXForCausalLM", UNGROUPED),
    "opt": Tiny(
        "OPTConfig", "OPTForCausalLM", {**UNGROUPED, "ffn_dim": 48, "word_embed_proj_dim": 32}
    ),
    "falcon": Tiny("FalconConfig", "FalconForCausalLM", UNGROUPED),
    "falcon_of_two_norms": Tiny(
        "FalconConfig",
        "FalconForCausalLM",
        {**UNGROUPED, "new_decoder_architecture": True, "num_kv_heads": 2},
    ),
    "starcoder2": Tiny("Starcoder2Config", "Starcoder2ForCausalLM", {**SIZES, "sliding_window": 8}),
    "olmo2": Tiny("Olmo2Config", "Olmo2ForCausalLM", SIZES),
    "mixtral": Tiny("MixtralConfig", "MixtralForCausalLM", {**SIZES, "num_local_experts": 4}),
    "qwen3_moe": Tiny(
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        {
            **SIZES,
            "head_dim": 16,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "mlp_only_layers": [0],
        },
    ),
    "phi": Tiny("PhiConfig", "PhiForCausalLM", {**UNGROUPED}),
    "bloom": Tiny(
        "BloomConfig",
        "BloomForCausalLM",
        {"vocab_size": VOCABULARY, "hidden_size": 48, "n_layer": 2, "n_head": 6, **SPECIAL},
    ),
    "smollm3": Tiny("SmolLM3Config", "SmolLM3ForCausalLM", {**SIZES, "no_rope_layers": [1, 0]}),
    "cohere": Tiny("CohereConfig", "CohereForCausalLM", {**SIZES, "use_qk_norm": True}),
    "cohere2": Tiny("Cohere2Config", "Cohere2ForCausalLM", {**SIZES, **WINDOW}),
    "ernie4_5": Tiny("Ernie4_5Config", "Ernie4_5ForCausalLM", {**SIZES, "head_dim": 16}),
    "ernie4_5_moe": Tiny(
        "Ernie4_5_MoeConfig",
        "Ernie4_5_MoeForCausalLM",
        {**SIZES, "moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 16},
    ),
    "glm": Tiny("GlmConfig", "GlmForCausalLM", {**SIZES, "head_dim": 16, "eos_token_id": []}),
    "glm4": Tiny("Glm4Config", "Glm4ForCausalLM", {**SIZES, "head_dim": 16, "eos_token_id": []}),
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
    "gpt_oss": Tiny(
        "GptOssConfig",
        "GptOssForCausalLM",
        {
            **SIZES,
            **WINDOW,
            "head_dim": 16,
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "swiglu_limit": 0.5,
            "rope_parameters": {**YARN, "truncate": False},
        },
    ),
    "llama4": Tiny(
        "Llama4TextConfig",
        "Llama4ForCausalLM",
        {
            **SIZES,
            "head_dim": 16,
            "intermediate_size_mlp": 40,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "no_rope_layers": [1, 0],
            "moe_layers": [1],
            "attention_chunk_size": 5,
            "floor_scale": 4,
            "attn_scale": 0.5,
        },
    ),
    "deepseek_v2": Tiny(
        "DeepseekV2Config",
        "DeepseekV2ForCausalLM",
        {**SIZES, **ROUTED, **LATENT, "q_lora_rank": None, "topk_method": "group_limited_greedy"},
    ),
    "deepseek_v3": Tiny(
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        {
            **SIZES,
            **ROUTED,
            **LATENT,
            "rope_parameters": {**YARN, "mscale": 0.8, "mscale_all_dim": 1.2},
        },
    ),
    "minicpm3": Tiny(
        "MiniCPM3Config", "MiniCPM3ForCausalLM", {**SIZES, **LATENT, "dim_model_base": 16}
    ),
    "gemma4": Tiny(
        "Gemma4TextConfig",
        "Gemma4ForCausalLM",
        {
            **SIZES,
            **WINDOW,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_hidden_layers": 4,
            "head_dim": 8,
            "global_head_dim": 16,
            "hidden_size_per_layer_input": 4,
            "vocab_size_per_layer_input": VOCABULARY,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma4_moe": Tiny(
        "Gemma4TextConfig",
        "Gemma4ForCausalLM",
        {
            **SIZES,
            **WINDOW,
            "head_dim": 8,
            "global_head_dim": 16,
            "hidden_size_per_layer_input": 0,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "enable_moe_block": True,
            "num_experts": 6,
            "top_k_experts": 2,
            "moe_intermediate_size": 16,
        },
    ),
    "qwen3_next": Tiny(
        "Qwen3NextConfig",
        "Qwen3NextForCausalLM",
        {
            **SIZES,
            **EXPERTS,
            **DELTA,
            "mlp_only_layers": [0],
            "shared_expert_intermediate_size": 20,
        },
    ),
    "mamba": Tiny("MambaConfig", "MambaForCausalLM", {**STATES, "use_bias": True}),
    "falcon_mamba": Tiny("FalconMambaConfig", "FalconMambaForCausalLM", STATES),
    "mamba2": Tiny(
        "Mamba2Config",
        "Mamba2ForCausalLM",
        {**STATES, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8},
    ),
    "arcee": Tiny("ArceeConfig", "ArceeForCausalLM", SIZES),
    "exaone4": Tiny("Exaone4Config", "Exaone4ForCausalLM", {**SIZES, **WINDOW}),
    "helium": Tiny("HeliumConfig", "HeliumForCausalLM", {**SIZES, "head_dim": 8}),
    "ministral": Tiny(
        "MinistralConfig", "MinistralForCausalLM", {**SIZES, **WINDOW, "head_dim": 16}
    ),
    "ministral3": Tiny(
        "Ministral3Config",
        "Ministral3ForCausalLM",
        {
            **SIZES,
            "head_dim": 16,
            "rope_parameters": {
                **YARN,
                "original_max_position_embeddings": 4,
                "llama_4_scaling_beta": 0.5,
            },
        },
    ),
    "phimoe": Tiny("PhimoeConfig", "PhimoeForCausalLM", {**SIZES, "num_local_experts": 4}),
    "qwen3_5": Tiny("Qwen3_5TextConfig", "Qwen3_5ForCausalLM", {**SIZES, **DELTA}),
    "qwen3_5_moe": Tiny(
        "Qwen3_5MoeTextConfig",
        "Qwen3_5MoeForCausalLM",
        {
            **{key: value for key, value in SIZES.items() if key != "intermediate_size"},
            **DELTA,
            **EXPERTS,
            "shared_expert_intermediate_size": 20,
        },
    ),
    "seed_oss": Tiny("SeedOssConfig", "SeedOssForCausalLM", {**SIZES, "head_dim": 16}),
    "nemotron": Tiny("NemotronConfig", "NemotronForCausalLM", {**SIZES, "head_dim": 16}),
    "mpt": Tiny(
        "MptConfig",
        "MptForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "d_model": 48,
            "n_layers": 2,
            "n_heads": 6,
            "max_seq_len": 64,
            "attn_config": {"clip_qkv": 1.5},
            **SPECIAL,
        },
    ),
    "gptj": Tiny(
        "GPTJConfig",
        "GPTJForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 64,
            "rotary_dim": 4,
            **SPECIAL,
        },
    ),
    "apertus": Tiny("ApertusConfig", "ApertusForCausalLM", SIZES),
    "hunyuan_v1_dense": Tiny(
        "HunYuanDenseV1Config",
        "HunYuanDenseV1ForCausalLM",
        {
            **SIZES,
            "head_dim": 16,
            "rope_parameters": {
                "rope_type": "dynamic",
                "rope_theta": 1e4,
                "alpha": 50.0,
                "factor": 1.0,
            },
        },
    ),
    "dots1": Tiny(
        "Dots1Config", "Dots1ForCausalLM", {**SIZES, **ROUTED, **WINDOW, "n_shared_experts": 2}
    ),
    "lfm2": Tiny(
        "Lfm2Config",
        "Lfm2ForCausalLM",
        {**SIZES, "layer_types": ["conv", "full_attention"], "block_multiple_of": 16},
    ),
    "lfm2_moe": Tiny(
        "Lfm2MoeConfig",
        "Lfm2MoeForCausalLM",
        {
            **SIZES,
            **EXPERTS,
            "layer_types": ["conv", "full_attention"],
            "num_dense_layers": 1,
            "conv_bias": True,
        },
    ),
    "granite_hybrid": Tiny(
        "GraniteMoeHybridConfig",
        "GraniteMoeHybridForCausalLM",
        {
            **SIZES,
            **HYBRID,
            "layer_types": ["linear_attention", "full_attention"],
            "num_local_experts": 4,
            "shared_intermediate_size": 20,
            "residual_multiplier": 0.7,
            "attention_multiplier": 0.3,
        },
    ),
    "granite_hybrid_dense": Tiny(
        "GraniteMoeHybridConfig",
        "GraniteMoeHybridForCausalLM",
        {
            **SIZES,
            **HYBRID,
            "layer_types": ["linear_attention", "full_attention"],
            "num_local_experts": 0,
            "shared_intermediate_size": 40,
            "position_embedding_type": "rope",
        },
    ),
    "jamba": Tiny(
        "JambaConfig",
        "JambaForCausalLM",
        {
            **SIZES,
            "num_experts": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_offset": 0,
            "mamba_d_state": 6,
        },
    ),
    "falcon_h1": Tiny(
        "FalconH1Config",
        "FalconH1ForCausalLM",
        {
            **SIZES,
            **HYBRID,
            "mamba_d_ssm": 48,
            "mamba_rms_norm": True,
            "mamba_norm_before_gate": False,
            "ssm_multipliers": [0.5, 1.5, 0.7, 0.8, 1.2],
            "mlp_multipliers": [0.6, 1.4],
            "ssm_in_multiplier": 1.3,
            "ssm_out_multiplier": 0.6,
            "attention_in_multiplier": 0.9,
            "attention_out_multiplier": 0.8,
            "key_multiplier": 0.7,
            "lm_head_multiplier": 0.4,
            "embedding_multiplier": 2.0,
        },
    ),
    "recurrent_gemma": Tiny(
        "RecurrentGemmaConfig",
        "RecurrentGemmaForCausalLM",
        {
            **{key: value for key, value in SIZES.items() if key != "max_position_embeddings"},
            "block_types": ["recurrent", "attention"],
            "attention_window_size": 6,
        },
    ),
    "minimax": Tiny(
        "MiniMaxConfig",
        "MiniMaxForCausalLM",
        {
            **SIZES,
            "num_hidden_layers": 3,
            "num_local_experts": 4,
            "layer_types": ["linear_attention", "linear_attention", "full_attention"],
            "block_size": 4,
            "full_attn_alpha_factor": 1.5,
            "linear_attn_beta_factor": 0.7,
            "mlp_alpha_factor": 1.2,
        },
    ),
    "gemma3n": Tiny(
        "Gemma3nTextConfig",
        "Gemma3nForCausalLM",
        {
            **SIZES,
            **WINDOW,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_hidden_layers": 4,
            "head_dim": 8,
            "hidden_size_per_layer_input": 4,
            "vocab_size_per_layer_input": VOCABULARY - 8,
            "num_kv_shared_layers": 2,
            "altup_num_inputs": 3,
            "altup_active_idx": 1,
            "laurel_rank": 6,
            "activation_sparsity_pattern": [0.7, 0.0, 0.4, 0.0],
            "final_logit_softcapping": 3.0,
        },
    ),
    "internlm3": Tiny(
        "InternLM3Config", "LlamaForCausalLM", {**SIZES, "head_dim": 16}, "InternLM3ForCausalLM"
    ),
    "exaone": Tiny("ExaoneConfig", "LlamaForCausalLM", SIZES, "ExaoneForCausalLM"),
}

SEEING = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


def seeing(name: str, config: str, model: str, **vision: Any) -> Tiny:
    """A model of which `name` is the text part."""
    parts = {"vision_config": {**SEEING, **vision}}
    return Tiny(config, model, {**parts, "text_config": TINY[name].options})


TEXT_PARTS = {
    "gemma3_of_a_seeing_one": seeing("gemma3", "Gemma3Config", "Gemma3ForConditionalGeneration"),
    "gemma4_of_a_seeing_one": seeing(
        "gemma4",
        "Gemma4Config",
        "Gemma4ForConditionalGeneration",
        num_key_value_heads=2,
        head_dim=8,
    ),
    "llama4_of_a_seeing_one": seeing(
        "llama4",
        "Llama4Config",
        "Llama4ForConditionalGeneration",
        vision_output_dim=16,
        projector_input_dim=16,
        projector_output_dim=16,
    ),
    "mistral_of_a_seeing_one": seeing(
        "mistral", "Mistral3Config", "Mistral3ForConditionalGeneration", head_dim=8
    ),
    "idefics3_text": seeing("llama", "Idefics3Config", "Idefics3ForConditionalGeneration"),
    "llava_text": seeing("llama", "LlavaConfig", "LlavaForConditionalGeneration"),
    **{
        f"{kind}_text": Tiny(
            f"{kind}Config",
            f"{kind}ForConditionalGeneration",
            {
                "text_config": {
                    **SIZES,
                    "rope_parameters": {
                        "rope_type": "default",
                        "rope_theta": 1e4,
                        "mrope_section": [1, 2, 1],
                    },
                },
                "vision_config": {"depth": 1, "num_heads": 2, "hidden_size": 32, width: 16},
            },
        )
        for kind, width in (("Qwen2VL", "embed_dim"), ("Qwen2_5_VL", "intermediate_size"))
    },
    "smolvlm_text": seeing("llama", "SmolVLMConfig", "SmolVLMForConditionalGeneration"),
}
ROPE = {"rope_theta": 10000.0, "factor": 4.0}
VARIANTS = {
    **TEXT_PARTS,
    "olmoe_clamped": TINY["olmoe"]._replace(options={**SIZES, **EXPERTS, "clip_qkv": 0.5}),
    "llama_with_biases": TINY["llama"]._replace(
        options={**SIZES, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    ),
    "llama_3": TINY["llama"]._replace(
        options={
            **SIZES,
            "rope_parameters": {
                **ROPE,
                "rope_type": "llama3",
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        }
    ),
    "llama_yarn": TINY["llama"]._replace(
        options={
            **SIZES,
            "rope_parameters": {
                **ROPE,
                "rope_type": "yarn",
                "original_max_position_embeddings": 16,
            },
        }
    ),
    "llama_dynamic": TINY["llama"]._replace(
        options={
            **SIZES,
            "max_position_embeddings": 16,
            "rope_parameters": {**ROPE, "rope_type": "dynamic"},
        }
    ),
    "phi3_longrope": TINY["phi3"]._replace(
        options={
            **SIZES,
            "head_dim": 8,
            "original_max_position_embeddings": 16,
            "rope_parameters": {
                "rope_theta": 10000.0,
                "rope_type": "longrope",
                "short_factor": [1.0, 1.5],
                "long_factor": [2.0, 5.0],
                "partial_rotary_factor": 0.5,
                "original_max_position_embeddings": 16,
            },
        }
    ),
    "phimoe_longrope": TINY["phimoe"]._replace(
        options={
            **SIZES,
            "num_local_experts": 4,
            "attention_bias": True,
            "lm_head_bias": True,
            "rms_norm_eps": 1e-3,
            "max_position_embeddings": 96,
            "rope_parameters": {
                "rope_theta": 10000.0,
                "rope_type": "longrope",
                "short_factor": [1.0, 1.5, 2.0, 3.0],
                "long_factor": [2.0, 5.0, 6.0, 7.0],
                "short_mscale": 1.25,
                "long_mscale": 1.25,
                "original_max_position_embeddings": 64,
            },
        },
        published="PhiMoEForCausalLM",
    ),
    "gpt_neox_in_sequence": TINY["gpt_neox"]._replace(
        options={**UNGROUPED, "use_parallel_residual": False, "attention_bias": False}
    ),
    "falcon_in_sequence": TINY["falcon"]._replace(
        options={**UNGROUPED, "parallel_attn": False, "multi_query": False, "bias": True}
    ),
    "qwen3_moe_normalised": TINY["qwen3_moe"]._replace(
        options={
            **TINY["qwen3_moe"].options,
            "norm_topk_prob": True,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [],
        }
    ),
}

RECURRENT = (
    *("qwen3_next", "qwen3_5", "qwen3_5_moe", "mamba", "falcon_mamba", "mamba2"),
    *("lfm2", "lfm2_moe", "granite_hybrid", "granite_hybrid_dense", "jamba"),
    *("falcon_h1", "recurrent_gemma", "minimax"),
)
"""They keep what they read as it comes: their texts are not padded."""
