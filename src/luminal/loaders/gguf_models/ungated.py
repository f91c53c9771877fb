"""Decoders whose MLP has no gate."""

from __future__ import annotations

from luminal.loaders.gguf_models.architecture import ALL_LAYERS, GGUFArchitecture
from luminal.loaders.gguf_models.names import (
    ATTENTION,
    BIASES,
    INTERLEAVED,
    KEYS,
    NAMES,
    NORMS_BEFORE,
    OWN_HEADS,
)
from luminal.loaders.gguf_models.rearranged import GROUPED, TRANSPOSED

_UNGROUPED = {key: name for key, name in KEYS.items() if key != "attention.head_count_kv"}
_FOUR_TIMES = {"mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}
_FALCON_KEYS = KEYS | {
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

ARCHITECTURES: tuple[GGUFArchitecture, ...] = (
    GGUFArchitecture(
        "PhiForCausalLM",
        "phi2",
        "phi",
        KEYS | {"attention.layer_norm_epsilon": "layer_norm_eps"},
        {
            "input_layernorm": "attn_norm",
            **ATTENTION,
            "self_attn.dense": "attn_output",
            "mlp.fc1": "ffn_up",
            "mlp.fc2": "ffn_down",
        },
        NAMES | {"model.final_layernorm": "output_norm"},
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
            **NORMS_BEFORE,
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
            **NORMS_BEFORE,
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
        KEYS | {"attention.layer_norm_epsilon": "norm_epsilon"},
        NORMS_BEFORE | ATTENTION | {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
        NAMES,
        flags={"use_bias": "attn_q.bias"},
        windowed=ALL_LAYERS,
    ),
    GGUFArchitecture(
        "ArceeForCausalLM",
        "arcee",
        "arcee",
        OWN_HEADS,
        NORMS_BEFORE | ATTENTION | {"mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"},
        NAMES,
        flags=BIASES | {"mlp_bias": "ffn_up.bias"},
        changes=INTERLEAVED,
    ),
)
