"""A Llama in plain NumPy and float64: what the compiled models are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def forward(
    config: Mapping[str, Any], weights: Mapping[str, npt.NDArray[Any]], ids: Sequence[int]
) -> Array:
    """Logits (len(ids), vocab_size) of a causal pass over `ids` from position 0."""
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    eps = config["rms_norm_eps"]
    x = w["model.embed_tokens.weight"][list(ids)]
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}."
        normed = rms_norm(x, w[layer + "input_layernorm.weight"], eps)
        x = x + attention(config, w, layer + "self_attn.", normed)
        normed = rms_norm(x, w[layer + "post_attention_layernorm.weight"], eps)
        x = x + swiglu(w, layer + "mlp.", normed)
    x = rms_norm(x, w["model.norm.weight"], eps)
    tied = config["tie_word_embeddings"]
    return x @ w["model.embed_tokens.weight" if tied else "lm_head.weight"].T


def width(config: Mapping[str, Any]) -> int:
    """Of a head."""
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """x / sqrt(mean(x*x) + eps) * weight over the last axis."""
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight


def swiglu(w: Mapping[str, Array], name: str, x: Array) -> Array:
    """down(silu(gate(x)) * up(x))."""
    gate = x @ w[name + "gate_proj.weight"].T
    up = x @ w[name + "up_proj.weight"].T
    return (gate / (1 + np.exp(-gate)) * up) @ w[name + "down_proj.weight"].T


def attention(config: Mapping[str, Any], w: Mapping[str, Array], name: str, x: Array) -> Array:
    """Causal grouped-query attention; x is (s, hidden)."""
    length, size = len(x), width(config)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]

    def split(projection: str, count: int) -> Array:
        return (x @ w[f"{name}{projection}.weight"].T).reshape(length, count, size).swapaxes(0, 1)

    q, k = (rotate(config, split(*p)) for p in (("q_proj", heads), ("k_proj", kv_heads)))
    k = np.repeat(k, heads // kv_heads, 0)
    v = np.repeat(split("v_proj", kv_heads), heads // kv_heads, 0)
    scores = q @ k.swapaxes(1, 2) / np.sqrt(size)
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    out = scores / scores.sum(-1, keepdims=True) @ v
    return out.swapaxes(0, 1).reshape(length, heads * size) @ w[name + "o_proj.weight"].T


def rotate(config: Mapping[str, Any], x: Array) -> Array:
    """Rotary embedding of x (heads, s, head_dim) at positions 0 .. s-1."""
    size = width(config)
    rope = config.get("rope_parameters") or config
    assert rope.get("rope_type", "default") == "default"
    angles = np.outer(np.arange(x.shape[1]), rope["rope_theta"] ** (-np.arange(0, size, 2) / size))
    cos, sin = np.cos(angles), np.sin(angles)
    a, b = x[..., : size // 2], x[..., size // 2 :]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)
