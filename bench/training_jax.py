"""The training steps of `bench/training.py` in JAX: one `jax.jit` each, its buffers donated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = np.ndarray[Any, Any]
Weights = Mapping[str, Any]
B1, B2, EPS = 0.9, 0.999, 1e-8


def cnn(weights: Mapping[str, Array], images: Array, labels: Array) -> Callable[[], float]:
    """A step with Adam; a call gives the loss before it."""

    def loss(w: Weights) -> Any:
        x = jax.nn.relu(_conv(jnp.asarray(images), w["conv1.weight"], w["conv1.bias"]))
        x = jax.nn.relu(_conv(x, w["conv2.weight"], w["conv2.bias"]))
        window = (1, 1, 2, 2)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
        x = jax.nn.relu(x.reshape(len(images), -1) @ w["fc1.weight"].T + w["fc1.bias"])
        return _cross_entropy(x @ w["fc2.weight"].T + w["fc2.bias"], jnp.asarray(labels))

    return _steps(weights, loss, decay=0.0)


def llama(
    weights: Mapping[str, Array],
    ids: Array,
    wanted: Array,
    layers: int,
    heads: int,
    theta: float = 10000.0,
    recomputed: bool = False,
) -> Callable[[], float]:
    """A step with AdamW; a call gives the loss before it. Weights of bfloat16 stay so, moments and
    the loss are f32. `recomputed`: layers are computed again for gradients. The embedding is the
    head where there is no other.
    """
    batch, length = ids.shape
    width = weights["model.norm.weight"].size // heads
    dtype = weights["model.norm.weight"].dtype
    groups = heads * width // len(weights["model.layers.0.self_attn.k_proj.weight"])
    angles = np.outer(np.arange(length), theta ** (-np.arange(width // 2) / (width // 2)))
    cos, sin = (np.tile(turn(angles), 2).astype(dtype) for turn in (np.cos, np.sin))
    hidden = np.triu(np.ones((length, length), bool), 1)

    def turned(x: Any) -> Any:
        low, high = jnp.split(x, 2, -1)
        return x * cos + jnp.concatenate((-high, low), -1) * sin

    def layer(x: Any, weights: Weights, prefix: str) -> Any:
        def w(name: str) -> Any:
            return weights[prefix + name]

        h = _norm(x, w("input_layernorm.weight"))
        q, k, v = (
            (h @ w(f"self_attn.{n}_proj.weight").T).reshape(batch, length, -1, width).swapaxes(1, 2)
            for n in "qkv"
        )
        k, v = (jnp.repeat(each, groups, 1) for each in (k, v))
        scores = turned(q) @ turned(k).swapaxes(2, 3) * width**-0.5
        mixed = jax.nn.softmax(jnp.where(hidden, -jnp.inf, scores)) @ v
        mixed = mixed.swapaxes(1, 2).reshape(batch, length, -1)
        x = x + mixed @ w("self_attn.o_proj.weight").T
        h = _norm(x, w("post_attention_layernorm.weight"))
        inner = jax.nn.silu(h @ w("mlp.gate_proj.weight").T) * (h @ w("mlp.up_proj.weight").T)
        return x + inner @ w("mlp.down_proj.weight").T

    def loss(w: Weights) -> Any:
        x = w["model.embed_tokens.weight"][jnp.asarray(ids)]
        for k in range(layers):
            prefix = f"model.layers.{k}."
            own = {name: each for name, each in w.items() if name.startswith(prefix)}
            call = partial(layer, prefix=prefix)
            x = (jax.checkpoint(call) if recomputed else call)(x, own)
        head = w["lm_head.weight" if "lm_head.weight" in w else "model.embed_tokens.weight"]
        logits = (_norm(x, w["model.norm.weight"]) @ head.T).astype(jnp.float32)
        return _cross_entropy(logits.reshape(batch * length, -1), jnp.asarray(wanted).reshape(-1))

    return _steps(weights, loss, decay=0.01)


def _steps(
    weights: Mapping[str, Array], loss: Callable[[Weights], Any], decay: float
) -> Callable[[], float]:
    def update(w: Weights, m: Weights, v: Weights, t: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(w)
        gradients = {n: g.astype(jnp.float32) for n, g in gradients.items()}
        t = t + 1
        m = {n: B1 * m[n] + (1 - B1) * g for n, g in gradients.items()}
        v = {n: B2 * v[n] + (1 - B2) * g * g for n, g in gradients.items()}

        def moved(n: str) -> Any:
            size = jnp.sqrt(v[n] / (1 - B2**t)) + EPS
            moved = w[n] * (1 - 1e-3 * decay) - 1e-3 * m[n] / (1 - B1**t) / size
            return moved.astype(w[n].dtype)

        return value, ({n: moved(n) for n in w}, m, v, t)

    step = jax.jit(update, donate_argnums=(0, 1, 2, 3))
    first = {name: jnp.array(w) for name, w in weights.items()}
    none = [{name: jnp.zeros(w.shape, jnp.float32) for name, w in first.items()} for _ in range(2)]
    state: list[Any] = [(first, *none, jnp.zeros((), jnp.float32))]

    def call() -> float:
        value, state[0] = step(*state[0])
        jax.block_until_ready(state[0])
        return float(value)

    return call


def _conv(x: Any, weight: Any, bias: Any) -> Any:
    return jax.lax.conv(x, weight, (1, 1), "VALID") + bias[:, None, None]


def _norm(x: Any, weight: Any) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * weight


def _cross_entropy(logits: Any, wanted: Any) -> Any:
    taken = jnp.take_along_axis(jax.nn.log_softmax(logits), wanted[:, None], 1)
    return -jnp.mean(taken)
