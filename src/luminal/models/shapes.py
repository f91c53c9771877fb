"""Sizes of published language models, as their `config.json` says them, for measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luminal.base.errors import InputError

Keys = Mapping[str, Any]


def _sizes(
    vocab: int, hidden: int, inner: int, layers: int, heads: int, kv_heads: int, head_dim: int
) -> dict[str, Any]:
    return {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": 8192,
    }


_TIED: Keys = {"tie_word_embeddings": True}
_UNTIED: Keys = {"tie_word_embeddings": False}
_LLAMA: Keys = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
_QWEN3: Keys = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
_GEMMA3: Keys = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "sliding_window": 512,
    **_TIED,
}

SHAPES: Mapping[str, Mapping[str, Keys]] = {
    "llama": {
        "1b": {**_LLAMA, **_sizes(128256, 2048, 8192, 16, 32, 8, 64), **_TIED},
        "3b": {**_LLAMA, **_sizes(128256, 3072, 8192, 28, 24, 8, 128), **_TIED},
        "8b": {**_LLAMA, **_sizes(128256, 4096, 14336, 32, 32, 8, 128), **_UNTIED},
        "70b": {**_LLAMA, **_sizes(128256, 8192, 28672, 80, 64, 8, 128), **_UNTIED},
    },
    "mistral": {
        "7b": {
            "architectures": ["MistralForCausalLM"],
            "model_type": "mistral",
            "sliding_window": None,
            **_sizes(32768, 4096, 14336, 32, 32, 8, 128),
            **_UNTIED,
        },
    },
    "mixtral": {
        "8x7b": {
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
            "sliding_window": None,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            **_sizes(32000, 4096, 14336, 32, 32, 8, 128),
            **_UNTIED,
        },
    },
    "qwen3": {
        "0.6b": {**_QWEN3, **_sizes(151936, 1024, 3072, 28, 16, 8, 128), **_TIED},
        "4b": {**_QWEN3, **_sizes(151936, 2560, 9728, 36, 32, 8, 128), **_TIED},
        "8b": {**_QWEN3, **_sizes(151936, 4096, 12288, 36, 32, 8, 128), **_UNTIED},
    },
    "qwen3_moe": {
        "30b": {
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
            "norm_topk_prob": True,
            **_sizes(151936, 2048, 6144, 48, 32, 4, 128),
            **_UNTIED,
        },
    },
    "gemma3": {
        "1b": {**_GEMMA3, **_sizes(262144, 1152, 6912, 26, 4, 1, 256)},
        "4b": {**_GEMMA3, **_sizes(262208, 2560, 10240, 34, 8, 4, 256)},
    },
}


def shape(arch: str, size: str) -> dict[str, Any]:
    """The keys of a `config.json`. Raises InputError for one that is not here."""
    if size not in SHAPES.get(arch, {}):
        shapes = "; ".join(f"{name}: {', '.join(sizes)}" for name, sizes in SHAPES.items())
        raise InputError(f"bench: no shape {size!r} of {arch!r}; there are {shapes}")
    return dict(SHAPES[arch][size])
