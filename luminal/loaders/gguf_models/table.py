"""The architectures of GGUF files: their keys and names, and what Hugging Face calls the same.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; names of tensors:
https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/defaults.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from luminal.loaders.gguf_models.rearranged import (
    BY_CHANNEL,
    GATE_BIASES_IN_TURN,
    GATES_FIRST,
    GATES_IN_TURN,
    GROUPED,
    INTERLEAVED_KEYS,
    INTERLEAVED_QUERIES,
    KEYS_AND_VALUES,
    LOGARITHMS,
    ONE_ROW,
    PLUS_ONE,
    TRANSPOSED,
    TRANSPOSED_EXPERTS,
    Change,
    Joined,
)

Names = Mapping[str, str]
NO_LAYER, ALL_LAYERS, ANY_LAYER = "no layer", "only all layers", "any layer"


@dataclass(frozen=True, slots=True)
class GGUFArchitecture:
    """The class `hugging_face`, in GGUF files under `name`.

    `keys`: of the configuration, by those of the metadata without the name. `names`, `layers`:
    Hugging Face's names to the file's without `.weight` or `.bias`, `layers` of those that begin
    with `prefix`; a `*` stands for the number of a layer, then of an expert. `flags`: keys of the
    configuration by the tensor whose presence in a layer says that they are true. `changes`: by
    the file's name. `defaults`: of the configuration, where the file says nothing else.
    `only_with`: a key of the metadata, or a tensor of a layer, without which the file is of another
    class; `key=number`: the key has this number. Where several of Hugging Face's names are one of
    the file's, the last is theirs that is read. `joined`: names of layers for two of the file's.
    `rope`: of `rope_parameters`, whatever the file. `windowed`: how many layers of the class may
    have a window, NO_LAYER, ALL_LAYERS or ANY_LAYER. `windows`: of so many the last has none, where
    the file does not list them; 0: all have one. `local_theta`: the rotary base of layers with a
    window, which turn by other angles than those without; 0 is theirs.
    """

    hugging_face: str
    name: str
    model_type: str
    keys: Names
    layers: Names
    names: Names
    prefix: str = "model.layers.*."
    flags: Names = field(default_factory=dict)
    changes: Mapping[str, Change] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    joined: Mapping[str, Joined] = field(default_factory=dict)
    rotary: bool = True
    rope: Mapping[str, Any] = field(default_factory=dict)
    windowed: str = NO_LAYER
    windows: int = 0
    local_theta: float | None = None
    only_with: str | None = None

    def may_slide(self, slides: Sequence[bool]) -> bool:
        """Whether the class can say that these layers have a window, and the others none."""
        return len({*slides}) < 2 if self.windowed == ALL_LAYERS else self.windowed == ANY_LAYER


def sliding(count: int, every: int) -> list[bool]:
    """Which of `count` layers have a window: all but every so many-th one; 0: all."""
    return [not every or (layer + 1) % every != 0 for layer in range(count)]


_KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.sliding_window": "sliding_window",
}
_RMS = _KEYS | {"attention.layer_norm_rms_epsilon": "rms_norm_eps"}
_OWN_HEADS = _RMS | {"attention.key_length": "head_dim"}
_EXPERTS = {"expert_used_count": "num_experts_per_tok"}
_UNGROUPED = {key: name for key, name in _KEYS.items() if key != "attention.head_count_kv"}

_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_ATTENTION = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
_GATED = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
_NORMS_BEFORE = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
_QK_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
_LLAMA = _NORMS_BEFORE | _ATTENTION | _GATED
_NORMS_AFTER = {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_NORMS_AROUND = {
    "input_layernorm": "attn_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    **_NORMS_AFTER,
}
_FOUR_TIMES = {"mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}

_INTERLEAVED = {"attn_q": INTERLEAVED_QUERIES, "attn_k": INTERLEAVED_KEYS}
_SHIFTED_NORMS = dict.fromkeys(
    (
        "attn_norm",
        "ffn_norm",
        "post_attention_norm",
        "post_ffw_norm",
        "attn_q_norm",
        "attn_k_norm",
        "output_norm",
    ),
    PLUS_ONE,
)
_BIASES = {"attention_bias": "attn_q.bias"}

_WEIGHTS_NORM = {"expert_weights_norm": "norm_topk_prob"}
_QWEN_EXPERTS = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.*.gate_proj": "ffn_gate_exps",
    "mlp.experts.*.down_proj": "ffn_down_exps",
    "mlp.experts.*.up_proj": "ffn_up_exps",
}
_COHERE_KEYS = _KEYS | {
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "logit_scale": "logit_scale",
}
_GRANITE_KEYS = _RMS | {
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "attention.scale": "attention_multiplier",
    "logit_scale": "logits_scaling",
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
    **{key: name for key, name in _RMS.items() if key != "attention.head_count_kv"},
    **_ROUTED_KEYS,
    "attention.q_lora_rank": "q_lora_rank",
    "attention.kv_lora_rank": "kv_lora_rank",
    "rope.dimension_count": "qk_rope_head_dim",
}
_LATENT_LAYERS = {
    **_LLAMA,
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
_FALCON_KEYS = _KEYS | {
    "feed_forward_length": "ffn_hidden_size",
    "attention.head_count_kv": "num_kv_heads",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}
_FALCON_LAYERS = _FOUR_TIMES | {
    "self_attention.query_key_value": "attn_qkv",
    "self_attention.dense": "attn_output",
}
_FALCON_NAMES = {
    "transformer.word_embeddings": "token_embd",
    "transformer.ln_f": "output_norm",
    "lm_head": "output",
}

_MAMBA_KEYS = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.layer_norm_rms_epsilon": "layer_norm_epsilon",
    "ssm.conv_kernel": "conv_kernel",
    "ssm.inner_size": "intermediate_size",
    "ssm.state_size": "state_size",
    "ssm.time_step_rank": "time_step_rank",
}
_MAMBA_LAYERS = {
    "norm": "attn_norm",
    "mixer.in_proj": "ssm_in",
    "mixer.conv1d": "ssm_conv1d",
    "mixer.x_proj": "ssm_x",
    "mixer.dt_proj": "ssm_dt",
    "mixer.A_log": "ssm_a",
    "mixer.D": "ssm_d",
    "mixer.out_proj": "ssm_out",
}
_MAMBA_NAMES = {
    "backbone.embeddings": "token_embd",
    "backbone.norm_f": "output_norm",
    "lm_head": "output",
}
_MAMBA_FLAGS = {"use_bias": "ssm_in.bias", "use_conv_bias": "ssm_conv1d.bias"}
_MAMBA_CHANGES = {"ssm_conv1d": BY_CHANNEL, "ssm_a": LOGARITHMS}

ARCHITECTURES: tuple[GGUFArchitecture, ...] = (
    GGUFArchitecture(
        "MixtralForCausalLM",
        "llama",
        "mixtral",
        _OWN_HEADS | _EXPERTS | {"expert_count": "num_local_experts"},
        _LLAMA
        | {
            "block_sparse_moe.gate": "ffn_gate_inp",
            "block_sparse_moe.experts.*.w1": "ffn_gate_exps",
            "block_sparse_moe.experts.*.w2": "ffn_down_exps",
            "block_sparse_moe.experts.*.w3": "ffn_up_exps",
        },
        _NAMES,
        changes=_INTERLEAVED,
        only_with="expert_count",
        windowed=ALL_LAYERS,
    ),
    GGUFArchitecture(
        "MinistralForCausalLM",
        "llama",
        "ministral",
        _OWN_HEADS,
        _LLAMA,
        _NAMES,
        changes=_INTERLEAVED,
        windowed=ANY_LAYER,
        only_with="attention.sliding_window_pattern",
    ),
    GGUFArchitecture(
        "MistralForCausalLM",
        "llama",
        "mistral",
        _OWN_HEADS,
        _LLAMA,
        _NAMES,
        changes=_INTERLEAVED,
        only_with="attention.sliding_window",
        windowed=ALL_LAYERS,
    ),
    GGUFArchitecture(
        "LlamaForCausalLM",
        "llama",
        "llama",
        _OWN_HEADS,
        _LLAMA,
        _NAMES,
        flags=_BIASES | {"mlp_bias": "ffn_up.bias"},
        changes=_INTERLEAVED,
    ),
    GGUFArchitecture(
        "SmolLM3ForCausalLM",
        "smollm3",
        "smollm3",
        _RMS,
        _LLAMA,
        _NAMES,
        flags=_BIASES | {"mlp_bias": "ffn_up.bias"},
        changes=_INTERLEAVED,
    ),
    GGUFArchitecture(
        "Qwen2ForCausalLM", "qwen2", "qwen2", _RMS, _LLAMA, _NAMES, windowed=ANY_LAYER
    ),
    GGUFArchitecture(
        "Qwen3ForCausalLM",
        "qwen3",
        "qwen3",
        _OWN_HEADS,
        _LLAMA | _QK_NORMS,
        _NAMES,
        flags=_BIASES,
        windowed=ANY_LAYER,
    ),
    GGUFArchitecture(
        "Qwen3MoeForCausalLM",
        "qwen3moe",
        "qwen3_moe",
        _OWN_HEADS
        | _EXPERTS
        | {
            "expert_count": "num_experts",
            "expert_feed_forward_length": "moe_intermediate_size",
            **_WEIGHTS_NORM,
        },
        _LLAMA | _QK_NORMS | _QWEN_EXPERTS,
        _NAMES,
        flags=_BIASES,
        defaults={"norm_topk_prob": True},
        windowed=ALL_LAYERS,
    ),
    GGUFArchitecture(
        "GemmaForCausalLM",
        "gemma",
        "gemma",
        _OWN_HEADS,
        _LLAMA,
        _NAMES,
        flags=_BIASES,
        changes=_SHIFTED_NORMS,
        defaults={"hidden_activation": "gelu_pytorch_tanh"},
    ),
    GGUFArchitecture(
        "Gemma2ForCausalLM",
        "gemma2",
        "gemma2",
        _OWN_HEADS,
        _ATTENTION | _GATED | _NORMS_AROUND,
        _NAMES,
        flags=_BIASES,
        changes=_SHIFTED_NORMS,
        defaults={"hidden_activation": "gelu_pytorch_tanh"},
        windowed=ANY_LAYER,
        windows=2,
    ),
    GGUFArchitecture(
        "Gemma3ForCausalLM",
        "gemma3",
        "gemma3_text",
        _OWN_HEADS,
        _ATTENTION | _GATED | _NORMS_AROUND | _QK_NORMS,
        _NAMES,
        flags=_BIASES,
        changes=_SHIFTED_NORMS,
        defaults={"hidden_activation": "gelu_pytorch_tanh"},
        windowed=ANY_LAYER,
        windows=6,
        local_theta=10000.0,
    ),
    GGUFArchitecture(
        "PhiForCausalLM",
        "phi2",
        "phi",
        _KEYS | {"attention.layer_norm_epsilon": "layer_norm_eps"},
        {
            "input_layernorm": "attn_norm",
            **_ATTENTION,
            "self_attn.dense": "attn_output",
            "mlp.fc1": "ffn_up",
            "mlp.fc2": "ffn_down",
        },
        _NAMES | {"model.final_layernorm": "output_norm"},
    ),
    GGUFArchitecture(
        "Phi3ForCausalLM",
        "phi3",
        "phi3",
        _RMS | {"rope.scaling.original_context_length": "original_max_position_embeddings"},
        {
            **_NORMS_BEFORE,
            "self_attn.qkv_proj": "attn_qkv",
            "self_attn.o_proj": "attn_output",
            "mlp.gate_up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
        },
        _NAMES,
        windowed=ALL_LAYERS,
    ),
    GGUFArchitecture(
        "GPT2LMHeadModel",
        "gpt2",
        "gpt2",
        {
            "context_length": "n_positions",
            "embedding_length": "n_embd",
            "block_count": "n_layer",
            "feed_forward_length": "n_inner",
            "attention.head_count": "n_head",
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
        },
        {
            "ln_1": "attn_norm",
            "attn.c_attn": "attn_qkv",
            "attn.c_proj": "attn_output",
            "ln_2": "ffn_norm",
            "mlp.c_fc": "ffn_up",
            "mlp.c_proj": "ffn_down",
        },
        {
            "transformer.wte": "token_embd",
            "transformer.wpe": "position_embd",
            "transformer.ln_f": "output_norm",
            "lm_head": "output",
        },
        prefix="transformer.h.*.",
        changes=dict.fromkeys(("attn_qkv", "attn_output", "ffn_up", "ffn_down"), TRANSPOSED),
        rotary=False,
    ),
    GGUFArchitecture(
        "GPTNeoXForCausalLM",
        "gptneox",
        "gpt_neox",
        _UNGROUPED
        | {
            "attention.layer_norm_epsilon": "layer_norm_eps",
            "use_parallel_residual": "use_parallel_residual",
        },
        {
            **_NORMS_BEFORE,
            **_FOUR_TIMES,
            "attention.query_key_value": "attn_qkv",
            "attention.dense": "attn_output",
        },
        {
            "gpt_neox.embed_in": "token_embd",
            "gpt_neox.final_layer_norm": "output_norm",
            "lm_head": "output",
            "embed_out": "output",
        },
        prefix="gpt_neox.layers.*.",
        flags={"attention_bias": "attn_qkv.bias"},
        changes={"attn_qkv": GROUPED},
    ),
    GGUFArchitecture(
        "FalconForCausalLM",
        "falcon",
        "falcon",
        _FALCON_KEYS,
        {**_FALCON_LAYERS, "ln_mlp": "attn_norm", "ln_attn": "attn_norm_2"},
        _FALCON_NAMES,
        prefix="transformer.h.*.",
        flags={"bias": "attn_qkv.bias"},
        changes={"attn_qkv": GROUPED},
        defaults={"new_decoder_architecture": True},
        only_with="attn_norm_2.weight",
    ),
    GGUFArchitecture(
        "FalconForCausalLM",
        "falcon",
        "falcon",
        _FALCON_KEYS,
        {**_FALCON_LAYERS, "input_layernorm": "attn_norm"},
        _FALCON_NAMES,
        prefix="transformer.h.*.",
        flags={"bias": "attn_qkv.bias"},
        changes={"attn_qkv": GROUPED},
        defaults={"new_decoder_architecture": False, "multi_query": True},
    ),
    GGUFArchitecture(
        "BloomForCausalLM",
        "bloom",
        "bloom",
        {
            "context_length": "seq_length",
            "embedding_length": "hidden_size",
            "block_count": "n_layer",
            "attention.head_count": "n_head",
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
        },
        {
            **_NORMS_BEFORE,
            **_FOUR_TIMES,
            "self_attention.query_key_value": "attn_qkv",
            "self_attention.dense": "attn_output",
        },
        {
            "transformer.word_embeddings": "token_embd",
            "transformer.word_embeddings_layernorm": "token_embd_norm",
            "transformer.ln_f": "output_norm",
            "lm_head": "output",
        },
        prefix="transformer.h.*.",
        changes={"attn_qkv": GROUPED},
        rotary=False,
    ),
    GGUFArchitecture(
        "Starcoder2ForCausalLM",
        "starcoder2",
        "starcoder2",
        _KEYS | {"attention.layer_norm_epsilon": "norm_epsilon"},
        _NORMS_BEFORE | _ATTENTION | {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
        _NAMES,
        flags={"use_bias": "attn_q.bias"},
        windowed=ALL_LAYERS,
    ),
    GGUFArchitecture(
        "Olmo3ForCausalLM",
        "olmo2",
        "olmo3",
        _RMS,
        _ATTENTION | _GATED | _NORMS_AFTER | _QK_NORMS,
        _NAMES,
        flags=_BIASES,
        windowed=ANY_LAYER,
        windows=4,
        local_theta=0.0,
        only_with="attention.sliding_window",
    ),
    GGUFArchitecture(
        "Olmo2ForCausalLM",
        "olmo2",
        "olmo2",
        _RMS,
        _ATTENTION | _GATED | _NORMS_AFTER | _QK_NORMS,
        _NAMES,
        flags=_BIASES,
    ),
    GGUFArchitecture(
        "OlmoForCausalLM",
        "olmo",
        "olmo",
        _KEYS | {"attention.clamp_kqv": "clip_qkv"},
        _ATTENTION | _GATED,
        _NAMES,
        flags=_BIASES,
        changes=_INTERLEAVED,
    ),
    GGUFArchitecture(
        "OlmoeForCausalLM",
        "olmoe",
        "olmoe",
        _RMS | _EXPERTS | {"expert_count": "num_experts", **_WEIGHTS_NORM},
        _ATTENTION | _NORMS_BEFORE | _QK_NORMS | _QWEN_EXPERTS,
        _NAMES,
        flags=_BIASES,
    ),
    GGUFArchitecture(
        "Qwen2MoeForCausalLM",
        "qwen2moe",
        "qwen2_moe",
        _RMS
        | _EXPERTS
        | {
            "expert_count": "num_experts",
            "expert_feed_forward_length": "moe_intermediate_size",
            "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
            **_WEIGHTS_NORM,
        },
        _LLAMA
        | _QWEN_EXPERTS
        | {
            "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
            "mlp.shared_expert.up_proj": "ffn_up_shexp",
            "mlp.shared_expert.down_proj": "ffn_down_shexp",
            "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
        },
        _NAMES,
        flags={"qkv_bias": "attn_q.bias"},
        changes={"ffn_gate_inp_shexp": ONE_ROW},
        windowed=ANY_LAYER,
    ),
    GGUFArchitecture(
        "StableLmForCausalLM",
        "stablelm",
        "stablelm",
        _KEYS
        | {
            "attention.layer_norm_epsilon": "layer_norm_eps",
            "use_parallel_residual": "use_parallel_residual",
        },
        _LLAMA,
        _NAMES,
        flags={"use_qkv_bias": "attn_q.bias"},
    ),
    GGUFArchitecture(
        "CohereForCausalLM",
        "command-r",
        "cohere",
        _COHERE_KEYS,
        {"input_layernorm": "attn_norm", **_ATTENTION, **_GATED, **_QK_NORMS},
        _NAMES,
        flags={**_BIASES, "use_qk_norm": "attn_q_norm.weight"},
    ),
    GGUFArchitecture(
        "Cohere2ForCausalLM",
        "cohere2",
        "cohere2",
        _COHERE_KEYS,
        {"input_layernorm": "attn_norm", **_ATTENTION, **_GATED},
        _NAMES,
        flags=_BIASES,
        windowed=ANY_LAYER,
        windows=4,
    ),
    GGUFArchitecture(
        "GraniteForCausalLM",
        "granite",
        "granite",
        _GRANITE_KEYS,
        _LLAMA,
        _NAMES,
        flags=_BIASES | {"mlp_bias": "ffn_up.bias"},
        changes=_INTERLEAVED,
    ),
    GGUFArchitecture(
        "GraniteMoeForCausalLM",
        "granitemoe",
        "granitemoe",
        _GRANITE_KEYS | _EXPERTS | {"expert_count": "num_local_experts"},
        _NORMS_BEFORE
        | _ATTENTION
        | {
            "block_sparse_moe.router.layer": "ffn_gate_inp",
            "block_sparse_moe.output_linear": "ffn_down_exps",
        },
        _NAMES,
        flags=_BIASES,
        changes=_INTERLEAVED,
        joined={"block_sparse_moe.input_linear.weight": GATES_FIRST},
    ),
    GGUFArchitecture(
        "Glm4ForCausalLM",
        "glm4",
        "glm4",
        _OWN_HEADS,
        {
            **_NORMS_BEFORE,
            **_ATTENTION,
            "post_self_attn_layernorm": "post_attention_norm",
            "post_mlp_layernorm": "post_ffw_norm",
            "mlp.gate_up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
        },
        _NAMES,
        flags=_BIASES,
    ),
    GGUFArchitecture(
        "Ernie4_5ForCausalLM",
        "ernie4_5",
        "ernie4_5",
        _OWN_HEADS,
        _LLAMA,
        _NAMES,
        flags={"use_bias": "attn_q.bias"},
    ),
    GGUFArchitecture(
        "GptOssForCausalLM",
        "gpt-oss",
        "gpt_oss",
        _OWN_HEADS | _EXPERTS | {"expert_count": "num_local_experts"},
        {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "post_attention_norm",
            **_ATTENTION,
            "self_attn.sinks": "attn_sinks.weight",
            "mlp.router": "ffn_gate_inp",
            "mlp.experts.down_proj": "ffn_down_exps.weight",
            "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
        },
        _NAMES,
        flags=_BIASES,
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
        _NAMES,
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
        _NAMES,
        flags={"attention_bias": "attn_q_a.bias"},
        joined={"self_attn.kv_b_proj.weight": KEYS_AND_VALUES},
    ),
    GGUFArchitecture(
        "Glm4MoeForCausalLM",
        "glm4moe",
        "glm4_moe",
        _OWN_HEADS | _ROUTED_KEYS,
        {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "post_attention_norm",
            **_ATTENTION,
            **_GATED,
            **_QK_NORMS,
            **_QWEN_EXPERTS,
            **_SHARED_EXPERTS,
            **_CORRECTION,
        },
        _NAMES,
        flags={**_BIASES, "use_qk_norm": "attn_q_norm.weight"},
    ),
    GGUFArchitecture(
        "Ernie4_5_MoeForCausalLM",
        "ernie4_5-moe",
        "ernie4_5_moe",
        _OWN_HEADS
        | {
            "expert_count": "moe_num_experts",
            "expert_used_count": "moe_k",
            "expert_feed_forward_length": "moe_intermediate_size",
            "expert_shared_count": "moe_num_shared_experts",
            "leading_dense_block_count": "moe_layer_start_index",
            "interleave_moe_layer_step": "moe_layer_interval",
        },
        {
            **_LLAMA,
            **_QWEN_EXPERTS,
            **_SHARED_EXPERTS,
            "mlp.moe_statics.e_score_correction_bias": "exp_probs_b.bias",
        },
        _NAMES,
        flags={"use_bias": "attn_q.bias"},
        changes={"exp_probs_b.bias": ONE_ROW},
    ),
    GGUFArchitecture(
        "GlmForCausalLM",
        "chatglm",
        "glm",
        _OWN_HEADS,
        {
            **_NORMS_BEFORE,
            **_ATTENTION,
            "mlp.gate_up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
        },
        _NAMES,
        flags=_BIASES,
    ),
    GGUFArchitecture(
        "FalconMambaForCausalLM",
        "mamba",
        "falcon_mamba",
        _MAMBA_KEYS,
        _MAMBA_LAYERS,
        _MAMBA_NAMES,
        prefix="backbone.layers.*.",
        flags=_MAMBA_FLAGS,
        changes=_MAMBA_CHANGES,
        rotary=False,
        only_with="ssm.dt_b_c_rms",
    ),
    GGUFArchitecture(
        "MambaForCausalLM",
        "mamba",
        "mamba",
        _MAMBA_KEYS,
        _MAMBA_LAYERS,
        _MAMBA_NAMES,
        prefix="backbone.layers.*.",
        flags=_MAMBA_FLAGS,
        changes=_MAMBA_CHANGES,
        rotary=False,
    ),
    GGUFArchitecture(
        "ArceeForCausalLM",
        "arcee",
        "arcee",
        _OWN_HEADS,
        _NORMS_BEFORE | _ATTENTION | {"mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"},
        _NAMES,
        flags=_BIASES | {"mlp_bias": "ffn_up.bias"},
        changes=_INTERLEAVED,
    ),
    GGUFArchitecture(
        "SeedOssForCausalLM",
        "seed_oss",
        "seed_oss",
        _OWN_HEADS,
        _LLAMA | {"post_attention_layernorm": "post_attention_norm"},
        _NAMES,
        flags={
            **_BIASES,
            "attention_out_bias": "attn_output.bias",
            "mlp_bias": "ffn_up.bias",
        },
    ),
)
"""Those of one name in the order in which they are tried."""
