"""Small programs whose e-graphs are sampled, each with inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import luminal as lm
from luminal import nn
from luminal.hlir.graph import Graph
from luminal.models.llama import Llama, LlamaConfig

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Program:
    """A graph, its inputs by name, and its dims' values."""

    graph: Graph
    inputs: dict[str, Array]
    dims: dict[str, int]


def record(build: Callable[[Any, Any], Any], dims: dict[str, int] | None = None) -> Program:
    """The program of `build(graph, input)`, where input(shape) makes inputs with random values."""
    cx = lm.Graph()
    rng = np.random.default_rng(0)
    inputs: dict[str, Array] = {}
    values = dims or {}

    def given(*shape: Any) -> Any:
        name = f"x{len(inputs)}"
        sizes = [values[n] if isinstance(n, str) else n for n in shape]
        inputs[name] = rng.normal(size=sizes).astype(np.float32)
        return cx.tensor(
            tuple(cx.dim(n, 1, 64) if isinstance(n, str) else n for n in shape), name=name
        )

    build(cx, given).output("y")
    return Program(cx.graph(), inputs, values)


def _weight(cx: Any, *shape: int) -> Any:
    rng = np.random.default_rng(len(shape) + sum(shape))
    weight = cx.weight(shape)
    weight.set(rng.normal(size=shape).astype(np.float32))
    return weight


def mlp(cx: Any, given: Any) -> Any:
    x, w1, b1 = given("s", 6), _weight(cx, 6, 8), _weight(cx, 8)
    w2, w3 = _weight(cx, 8, 5), _weight(cx, 8, 4)
    hidden = ((x @ w1 + b1) * 0.5).relu()
    return (hidden @ w2).sum(1) + (hidden @ w3).sum(1)


def softmax(cx: Any, given: Any) -> Any:
    return (given("s", 6) * 0.5).softmax(-1)


def layer_norm(cx: Any, given: Any) -> Any:
    x = given("s", 6)
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * _weight(cx, 6)


def _attend(scores: Any, v: Any) -> Any:
    return scores.softmax(-1) @ v


def attention(cx: Any, given: Any) -> Any:
    q, k, v = given(2, 5, 4), given(2, 7, 4), given(2, 7, 4)
    return _attend(q @ k.mT * 0.5, v)


def attention_causal(cx: Any, given: Any) -> Any:
    q, k, v = given(2, "s", 4), given(2, "s", 4), given(2, "s", 4)
    n = q.shape[1]
    seen = cx.arange(n).reshape(1, n) <= cx.arange(n).reshape(n, 1)
    return _attend(lm.where(seen.reshape(1, n, n).expand(2, n, n), q @ k.mT * 0.5, -np.inf), v)


def attention_grouped(cx: Any, given: Any) -> Any:
    q, k, v = given(2, 3, 5, 4), given(2, 1, 7, 4), given(2, 1, 7, 4)
    return _attend(q @ k.mT * 0.5, v)


def attention_bias(cx: Any, given: Any) -> Any:
    q, k, v, bias = given(2, 5, 4), given(2, 7, 4), given(2, 7, 4), given(5, 7)
    return _attend(q @ k.mT * 0.5 + bias, v)


def cnn(cx: Any, given: Any) -> Any:
    x = given(1, 2, 8, 8).conv2d(_weight(cx, 3, 2, 3, 3), padding=1).relu().max_pool2d(2)
    x = x.conv2d(_weight(cx, 4, 3, 3, 3)).relu().avg_pool2d(2)
    return x.reshape(1, 4) @ _weight(cx, 4, 3)


def moe(cx: Any, given: Any) -> Any:
    nn.init.manual_seed(0)
    return nn.MoE(6, 8, 4, 2)(given(3, 6))


def llama(cx: Any, given: Any) -> Any:
    nn.init.manual_seed(0)
    config = LlamaConfig(16, 12, 1, 4, 2, 4, 32)
    layer = Llama(config).model.layers[0]
    x = given("s", 16)
    return layer(x, layer.self_attn.rotary.angles(cx, x.shape[0], 0))


def matrices(cx: Any, given: Any) -> Any:
    return given(3, 4) @ given(4, 5) @ given(5, 2)


PROGRAMS: dict[str, tuple[Callable[[Any, Any], Any], dict[str, int]]] = {
    "mlp": (mlp, {"s": 3}),
    "softmax": (softmax, {"s": 3}),
    "layer_norm": (layer_norm, {"s": 3}),
    "attention": (attention, {}),
    "attention_causal": (attention_causal, {"s": 4}),
    "attention_grouped": (attention_grouped, {}),
    "attention_bias": (attention_bias, {}),
    "cnn": (cnn, {}),
    "moe": (moe, {}),
    "llama": (llama, {"s": 3}),
    "matrices": (matrices, {}),
}


def program(name: str) -> Program:
    build, dims = PROGRAMS[name]
    return record(build, dims)
