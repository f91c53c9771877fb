"""Small networks whose genomes are sampled in short tests: sizes leave rests beside every tile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import luminal as lm
from luminal import nn
from luminal.models.llama import Llama, LlamaConfig
from tests.fuzz.genome_drafts import Draft, decided, tamed
from tests.fuzz.graphs import Case


def mlp() -> list[Case]:
    """Two products of one hidden layer that are summed, and the layer itself."""
    d = Draft(({"s": 37},))
    x = d.given(d.cx.dim("s", 1, 64), 24)
    hidden = (d.dense(x, 40) + d.weight(40)).relu()
    return d.cases(d.dense(hidden, 20).sum(1) + d.dense(hidden, 12).sum(1), hidden)


def softmax() -> list[Case]:
    d = Draft(({"s": 37},))
    return d.cases((d.given(d.cx.dim("s", 1, 64), 70) * 0.5).softmax(-1))


def layer_norm() -> list[Case]:
    d = Draft(({"s": 37},))
    x = d.given(d.cx.dim("s", 1, 64), 70)
    centred = x - x.mean(-1, keepdim=True)
    scale = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return d.cases(centred / scale * d.weight(70))


def _attend(q: Any, k: Any, v: Any, change: Callable[[Any], Any] = lambda scores: scores) -> Any:
    return change(q @ k.mT * 0.3).softmax(-1) @ v


def attention() -> list[Case]:
    d = Draft()
    return d.cases(_attend(d.given(2, 45, 16), d.given(2, 75, 16), d.given(2, 75, 20)))


def attention_causal() -> list[Case]:
    d = Draft(({"s": 61},))
    s = d.cx.dim("s", 1, 64)
    q, k, v = (d.given(2, s, 16) for _ in range(3))
    seen = d.cx.arange(s).reshape(1, s) <= d.cx.arange(s).reshape(s, 1)
    return d.cases(_attend(q, k, v, lambda scores: lm.where(seen, scores, -np.inf)))


def attention_shared() -> list[Case]:
    """Three heads of queries for each of keys."""
    d = Draft()
    return d.cases(_attend(d.given(2, 3, 21, 16), d.given(2, 1, 75, 16), d.given(2, 1, 75, 16)))


def attention_bias() -> list[Case]:
    d = Draft()
    q, k, v, bias = d.given(2, 45, 16), d.given(2, 75, 16), d.given(2, 75, 16), d.given(45, 75)
    return d.cases(_attend(q, k, v, lambda scores: scores + bias))


def streams() -> list[Case]:
    """What is made of products row by row, in one sweep over them and in several."""
    d = Draft(({"s": 41},))
    q, k, v = d.given(2, d.cx.dim("s", 1, 64), 16), d.given(2, 75, 16), d.given(2, 75, 20)
    scores, others = q @ k.mT * 0.3, q @ d.given(2, 90, 16).mT * 0.3
    weights = scores.exp()
    quotients = (weights / weights.sum(-1, keepdim=True)) @ v
    return d.cases(quotients, others.relu().sum(-1), others.var(-1))


def layers() -> list[Case]:
    """A layer whose product streams only where a genome asks for it."""
    d = Draft()
    return d.cases((d.given(70, 48) @ d.weight(48, 40)).relu() @ d.weight(40, 24))


def cnn() -> list[Case]:
    d = Draft()
    x = d.given(2, 3, 18, 18).conv2d(d.weight(8, 3, 3, 3, sums=27), padding=1).relu()
    x = x.max_pool2d(2).conv2d(d.weight(12, 8, 3, 3, sums=72)).relu().avg_pool2d(2)
    return d.cases(d.dense(x.reshape(2, 108), 10), x)


def moe() -> list[Case]:
    """So few tokens that each reads the experts it goes to."""
    d = Draft()
    layer = nn.MoE(24, 20, 8, 2)
    return d.cases(layer(d.given(4, 24, settle=partial(decided, layer))))


def llama() -> list[Case]:
    d = Draft(({"s": 19},))
    model = tamed(Llama(LlamaConfig(32, 48, 1, 4, 2, 8, 70, 64)).eval())
    return d.cases(model(d.given(d.cx.dim("s", 1, 64), dtype=lm.int32, below=70)))


def matrices() -> list[Case]:
    d = Draft()
    return d.cases(d.given(37, 24) @ d.given(24, 45) @ d.given(45, 12))


NETWORKS: dict[str, Callable[[], list[Case]]] = {
    build.__name__: build
    for build in (
        mlp, softmax, layer_norm, attention, attention_causal, attention_shared, attention_bias,
        streams, layers,
        cnn, moe, llama, matrices,
    )
}  # fmt: skip
