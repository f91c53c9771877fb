"""Keys and names that architectures of several families have in common."""

from __future__ import annotations

from luminal.loaders.gguf_models.rearranged import INTERLEAVED_KEYS, INTERLEAVED_QUERIES

KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.sliding_window": "sliding_window",
}
RMS = KEYS | {"attention.layer_norm_rms_epsilon": "rms_norm_eps"}
OWN_HEADS = RMS | {"attention.key_length": "head_dim"}
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
ATTENTION = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
GATED = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
NORMS_BEFORE = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
QK_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
LLAMA = NORMS_BEFORE | ATTENTION | GATED
INTERLEAVED = {"attn_q": INTERLEAVED_QUERIES, "attn_k": INTERLEAVED_KEYS}
BIASES = {"attention_bias": "attn_q.bias"}
GRANITE_KEYS = RMS | {
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "attention.scale": "attention_multiplier",
    "logit_scale": "logits_scaling",
}
