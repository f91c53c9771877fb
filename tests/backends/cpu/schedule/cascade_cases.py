"""Programs whose sums run in one pass with a running maximum: every variant of attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import luminal as lm
from luminal.base.dtypes import dtype_of
from tests.fuzz.graphs import Case

Fn = Callable[..., Any]
Shapes = dict[str, tuple[Any, ...]]
QKV: Shapes = {"q": (2, 70, 24), "k": (2, 300, 24), "v": (2, 300, 24)}


def positions(x: lm.Tensor, queries: Any, keys: Any) -> tuple[lm.Tensor, lm.Tensor]:
    graph = x.graph
    return graph.arange(queries).reshape(queries, 1), graph.arange(keys).reshape(1, keys)


def attend(q: lm.Tensor, k: lm.Tensor, v: lm.Tensor) -> lm.Tensor:
    return (q @ k.mT * 0.2).softmax(-1) @ v


def masked(seen: Callable[[lm.Tensor, lm.Tensor], lm.Tensor], spelling: str = "where") -> Fn:
    def fn(q: lm.Tensor, k: lm.Tensor, v: lm.Tensor) -> lm.Tensor:
        visible = seen(*positions(q, q.extents[-2], k.extents[-2]))
        scores = q @ k.mT * 0.2
        if spelling == "added":
            scores = scores + lm.where(visible, 0.0, -np.inf)
        elif spelling == "filled":
            scores = scores.masked_fill(visible.logical_not(), -np.inf)
        else:
            scores = lm.where(visible, scores, -np.inf)
        return scores.softmax(-1) @ v

    return fn


def grouped(q: lm.Tensor, k: lm.Tensor, v: lm.Tensor) -> lm.Tensor:
    """Six heads of queries over two of keys, in a cache of rows longer than what is attended."""
    split = q.reshape(2, 3, *q.extents[1:])
    return attend(split, k.unsqueeze(1), v.unsqueeze(1)).reshape(6, *q.extents[1:])


def alibi(q: lm.Tensor, k: lm.Tensor, v: lm.Tensor, slopes: lm.Tensor) -> lm.Tensor:
    i, j = positions(q, 70, 300)
    scores = q @ k.mT * 0.2 + slopes * (j - i).cast("float32")
    return lm.where(j <= i + 230, scores, -np.inf).softmax(-1) @ v


def with_log_sum(q: lm.Tensor, k: lm.Tensor, v: lm.Tensor) -> tuple[lm.Tensor, lm.Tensor]:
    scores = q @ k.mT * 0.2
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def raw_scores_again(q: lm.Tensor, k: lm.Tensor, v: lm.Tensor) -> lm.Tensor:
    """The sums need the products themselves beside their exponentials."""
    scores = q @ k.mT
    scaled = scores * 0.2
    weights = (scaled - scaled.amax(-1, keepdim=True)).exp()
    return ((weights * scores) @ v) / weights.sum(-1, keepdim=True)


def another_product(
    q: lm.Tensor, k: lm.Tensor, v: lm.Tensor, p: lm.Tensor, o: lm.Tensor
) -> lm.Tensor:
    """A second product of queries and keys, of any width, that only the sums need."""
    scores = q @ k.mT * 0.2
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return ((weights * (p @ o.mT)) @ v) / weights.sum(-1, keepdim=True)


def parts(q: lm.Tensor, k: lm.Tensor, v: lm.Tensor) -> tuple[lm.Tensor, ...]:
    """What another part of the keys can be added to: the maximum, the sums, and the result."""
    scores = q @ k.mT * 0.2
    top = scores.amax(-1, keepdim=True)
    weights = (scores - top).exp()
    total, product = weights.sum(-1, keepdim=True), weights @ v
    return top, total, product, product / total


def two_axes_of_keys(q: lm.Tensor, k: lm.Tensor, v: lm.Tensor, bias: lm.Tensor) -> lm.Tensor:
    """Keys on a grid of 7 by 40 with a bias for either coordinate."""
    scores = (q @ k.reshape(2, 280, 24).mT * 0.2).reshape(2, 70, 7, 40)
    scores = scores + bias.reshape(7, 1)
    return scores.reshape(2, 70, 280).softmax(-1) @ v.reshape(2, 280, 24)


def summed_first(q: lm.Tensor, k: lm.Tensor, v: lm.Tensor) -> lm.Tensor:
    """A quotient whose sum needs no maximum."""
    weights = (q @ k.mT * 0.2).exp()
    return (weights / weights.sum(-1, keepdim=True)) @ v


def sink(q: lm.Tensor, k: lm.Tensor, v: lm.Tensor, s: lm.Tensor) -> lm.Tensor:
    """A score beside those of the keys that has no value."""
    scores = q @ k.mT * 0.2
    top = scores.amax(-1, keepdim=True).maximum(s)
    weights = (scores - top).exp()
    return (weights @ v) / (weights.sum(-1, keepdim=True) + (s - top).exp())


def entropy(q: lm.Tensor, k: lm.Tensor, scale: float = 0.2) -> lm.Tensor:
    weights = (q @ k.mT * scale).softmax(-1)
    return -(weights * weights.log()).sum(-1)


def of_products(q: lm.Tensor, k: lm.Tensor) -> lm.Tensor:
    """The scores are the products themselves, which each of two sweeps reads."""
    return entropy(q, k, 1.0)


def two_softmaxes(q: lm.Tensor, k: lm.Tensor, v: lm.Tensor) -> tuple[lm.Tensor, lm.Tensor]:
    scores = q @ k.mT * 0.2
    return scores.softmax(-1) @ v, (scores * 2).softmax(-1) @ v


def masked_relu(fill: float) -> Fn:
    def fn(q: lm.Tensor, k: lm.Tensor, v: lm.Tensor) -> lm.Tensor:
        i, j = positions(q, q.extents[-2], k.extents[-2])
        return lm.where(j <= i, q @ k.mT, fill).relu() @ v

    return fn


def of_scores(fn: Callable[[lm.Tensor], lm.Tensor]) -> tuple[Fn, Shapes]:
    """A function of the scores alone."""
    return (lambda q, k: fn(q @ k.mT * 0.2)), {n: QKV[n] for n in "qk"}


def mapped(fn: Callable[[lm.Tensor], lm.Tensor]) -> tuple[Fn, Shapes]:
    """Products with what a function makes of the scores."""
    return (lambda q, k, v: fn(q @ k.mT * 0.2) @ v), QKV


def difference(q: lm.Tensor, k: lm.Tensor, v: lm.Tensor, p: lm.Tensor, o: lm.Tensor) -> lm.Tensor:
    return attend(q, k, v) - 0.5 * attend(p, o, v)


CASES: dict[str, tuple[Fn, Shapes]] = {
    "plain": (attend, QKV),
    "narrow values": (attend, {**QKV, "v": (2, 300, 7)}),
    "wide": (attend, dict.fromkeys("qkv", (1, 40, 256))),
    "width 80": (attend, dict.fromkeys("qkv", (3, 50, 80))),
    "no heads": (attend, dict.fromkeys("qkv", (90, 16))),
    "batch": (attend, dict.fromkeys("qkv", (2, 3, 33, 16))),
    "one query": (attend, {**QKV, "q": (2, 1, 24), "k": (2, 1100, 24), "v": (2, 1100, 24)}),
    "few queries": (attend, {**QKV, "q": (2, 5, 24), "k": (2, 1100, 24), "v": (2, 1100, 24)}),
    "grouped": (grouped, {"q": (6, 70, 16), "k": (2, 90, 16), "v": (2, 90, 16)}),
    "grouped, one query": (grouped, {"q": (6, 1, 16), "k": (2, 600, 16), "v": (2, 600, 16)}),
    "dynamic": (attend, {"q": (2, "s", 16), "k": (2, "t", 16), "v": (2, "t", 16)}),
    "causal": (masked(lambda i, j: j <= i), dict.fromkeys("qkv", (2, 300, 24))),
    "causal, dynamic": (masked(lambda i, j: j <= i), dict.fromkeys("qkv", (2, "t", 24))),
    "causal, added": (masked(lambda i, j: j <= i, "added"), dict.fromkeys("qkv", (2, 99, 24))),
    "causal, filled": (masked(lambda i, j: j <= i, "filled"), dict.fromkeys("qkv", (2, 99, 24))),
    "ahead": (masked(lambda i, j: j >= i + 40), QKV),
    "behind, some see nothing": (masked(lambda i, j: j < i - 10), QKV),
    "window": (masked(lambda i, j: (j <= i + 99) & (j > i + 30)), QKV),
    "window and first": (masked(lambda i, j: (j <= i) & ((j > i - 20) | (j < 4))), QKV),
    "window or first, long": (
        masked(lambda i, j: ((j <= i) & (j > i - 30)) | (j < 4)),
        {"q": (1, 900, 16), "k": (1, 900, 16), "v": (1, 900, 16)},
    ),
    "capped": (lambda q, k, v: (((q @ k.mT) / 5).tanh() * 5).softmax(-1) @ v, QKV),
    "biased": (lambda q, k, v, b: (q @ k.mT * 0.2 + b).softmax(-1) @ v, QKV | {"b": (70, 300)}),
    "alibi": (alibi, {**QKV, "slopes": (2, 1, 1)}),
    "log-sum-exp beside": (with_log_sum, QKV),
    "log-sum-exp alone": (lambda q, k: (q @ k.mT).logsumexp(-1), {n: QKV[n] for n in "qk"}),
    "given scores": (lambda s, v: s.softmax(-1) @ v, {"s": (2, 70, 300), "v": (2, 300, 24)}),
    "weighted": (lambda q, k, v, w: ((q @ k.mT).softmax(-1) * w) @ v, QKV | {"w": (70, 300)}),
    "raw scores again": (raw_scores_again, QKV),
    "another product": (
        lambda q, k, v, p: another_product(q, k, v, p, k),
        QKV | {"p": (2, 70, 24)},
    ),
    "another product of other width": (
        another_product,
        QKV | {"p": (2, 70, 16), "o": (2, 300, 16)},
    ),
    "parts": (parts, QKV),
    "two axes of keys": (
        two_axes_of_keys,
        {"q": (2, 70, 24), "k": (2, 7, 40, 24), "v": (2, 7, 40, 24), "bias": (7,)},
    ),
    "relu": mapped(lambda s: s.relu()),
    "sigmoid": mapped(lambda s: s.sigmoid()),
    "silu": mapped(lambda s: s * s.sigmoid()),
    "squared relu": mapped(lambda s: s.relu().square()),
    "product of three": mapped(lambda s: s),
    "relu, dynamic": (
        lambda q, k, v: (q @ k.mT).relu() @ v,
        {"q": (2, "s", 16), "k": (2, "t", 16), "v": (2, "t", 16)},
    ),
    "relu, few queries": (
        lambda q, k, v: (q @ k.mT).relu() @ v,
        {**QKV, "q": (8, 5, 24), "k": (8, 600, 24), "v": (8, 600, 24)},
    ),
    "relu, causal": (masked_relu(-np.inf), dict.fromkeys("qkv", (2, 300, 24))),
    "relu, causal, zeros": (masked_relu(0.0), dict.fromkeys("qkv", (2, 99, 24))),
    "relu, values of a triangle": (lambda q, k, v: (q @ k.mT).relu() @ v.tril(), QKV),
    "relu, both of a triangle": (lambda q, k, v: (q @ k.mT).tril(9).relu() @ v.triu(-99), QKV),
    "summed first": (summed_first, QKV),
    "greatest": of_scores(lambda s: s.amax(-1)),
    "least": of_scores(lambda s: s.amin(-1)),
    "where greatest": of_scores(lambda s: s.argmax(-1)),
    "sum": of_scores(lambda s: s.relu().sum(-1)),
    "variance": of_scores(lambda s: s.var(-1)),
    "entropy": (entropy, {n: QKV[n] for n in "qk"}),
    "entropy, few rows": (of_products, {"q": (3, 24), "k": (1300, 24)}),
    "entropy, many rows": (of_products, {"q": (70, 24), "k": (1300, 24)}),
    "logarithms": mapped(lambda s: s.log_softmax(-1)),
    "centred": mapped(lambda s: s - s.mean(-1, keepdim=True)),
    "sink": (sink, QKV | {"s": (1,)}),
    "two softmaxes": (two_softmaxes, QKV),
    "difference": (difference, QKV | {"p": (2, 70, 24), "o": (2, 300, 24)}),
}
DIMS: dict[Any, int] = {"s": 45, "t": 131}
KERNELS = {"difference": 2}  # all others: one


def case(name: str, dtype: str = "float32", *, widened: bool = False) -> Case:
    """The graph of that name and random inputs, which it may widen first."""
    fn, shapes = CASES[name]
    cx = lm.Graph()
    dims = {d: DIMS[d] for d in DIMS if any(d in shape for shape in shapes.values())}
    named = {d: cx.dim(d, 1, 512) for d in dims}
    tensors = [
        cx.tensor(tuple(named.get(n, n) for n in shape), name=name, dtype=dtype)
        for name, shape in shapes.items()
    ]
    made = fn(*(x.cast("float32") for x in tensors) if widened else tensors)
    for k, value in enumerate(made if isinstance(made, tuple) else (made,)):
        value.output(f"y{k}")
    rng = np.random.default_rng(3)
    inputs = {
        name: rng.standard_normal(tuple(DIMS.get(n, n) for n in shape)).astype(
            dtype_of(dtype).numpy
        )
        for name, shape in shapes.items()
    }
    return Case(cx.graph(), inputs, dims, {})
