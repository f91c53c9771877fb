"""Keys and names of GGUF files for the settings and weights of a Decoder.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; names of tensors:
https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py.
"""

from __future__ import annotations

from collections.abc import Mapping

KEYS: Mapping[str, str] = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.clamp_kqv": "projection_limit",
    "attention.scale": "query_scale",
    "embedding_scale": "embedding_scale",
    "residual_scale": "residual_scale",
    "logit_scale": "logit_scale",
    "attn_logit_softcapping": "attention_softcap",
    "final_logit_softcapping": "logit_softcap",
    "use_parallel_residual": "parallel",
}
"""Keys of the metadata, and the fields of a DecoderConfig that they give."""
NO_HEAD_DIM: Mapping[str, None] = {"attention.key_length": None}
"""For classes of Hugging Face that have no setting for the width of a head."""
RMS_EPSILON, LAYER_EPSILON = (f"attention.layer_norm_{kind}epsilon" for kind in ("rms_", ""))
"""The keys of `norm_eps`, by the kind of norm."""
EXPERT_KEYS: Mapping[str, str] = {
    "expert_count": "count",
    "expert_used_count": "top_k",
    "expert_feed_forward_length": "intermediate_size",
    "expert_shared_feed_forward_length": "shared_size",
    "expert_weights_norm": "normalize",
    "expert_weights_scale": "scale",
}
"""The same for the fields of an ExpertsConfig."""
FLAGS: Mapping[str, tuple[str, ...]] = {
    "attention_bias": ("attn_q.bias", "attn_qkv.bias", "attn_q_a.bias"),
    "output_bias": ("attn_output.bias",),
    "mlp_bias": ("ffn_up.bias",),
    "qk_norm": ("attn_q_norm.weight",),
}
"""Fields of a DecoderConfig that no key gives, and tensors of a layer that tell: one is there."""
NUMBERS = (
    RMS_EPSILON,
    LAYER_EPSILON,
    "attention.clamp_kqv",
    "attention.scale",
    "attn_logit_softcapping",
    "embedding_scale",
    "expert_weights_scale",
    "final_logit_softcapping",
    "logit_scale",
    "residual_scale",
)
NEVER = 1e30
"""What files divide the frequencies of features by that do not turn."""
BOOLEANS = ("use_parallel_residual", "expert_weights_norm")

NAMES: Mapping[str, str] = {
    "model.embed_tokens": "token_embd",
    "model.embed_positions": "position_embd",
    "model.embed_norm": "token_embd_norm",
    "model.norm": "output_norm",
    "lm_head": "output",
}
"""Weights outside of layers: a Decoder's names and the files', without `.weight` or `.bias`."""
LAYER_NAMES: Mapping[str, str] = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "attention_output_norm": "post_attention_norm",
    "mlp_output_norm": "post_ffw_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.experts.*.gate_proj": "ffn_gate_exps",
    "mlp.experts.*.up_proj": "ffn_up_exps",
    "mlp.experts.*.down_proj": "ffn_down_exps",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
"""Weights of a layer: names behind `model.layers.*.` and behind `blk.*.`. The second star is the
number of an expert; the files have all experts in one tensor."""
FUSED_GATE: Mapping[str, str] = {"mlp.gate_up_proj": "ffn_up"}
"""The name of gates above what they let through, where a file has both as one matrix."""
