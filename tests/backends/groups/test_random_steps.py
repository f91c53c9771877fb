"""Random steps of decoders: a norm, products, attention of few queries over a cache, in any shapes,
masks, scales and orders, as devices of groups cut, join and repeat them.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import luminal as lm
from tests.backends.c_family.dialects import checked
from tests.backends.groups.decode_graphs import cutting
from tests.backends.on_device import check_case, compiled_on
from tests.fuzz.graphs import Case
from tests.long_share import mostly_long


def step(rng: random.Random) -> Case:
    """A step of random extents: one may be a dim."""
    groups, shared, width = rng.choice((1, 2, 3)), rng.choice((1, 2, 4)), rng.choice((3, 4, 8, 12))
    queries, length = rng.choice((1, 1, 2, 3)), rng.randint(1, 120)
    model, heads = rng.choice((8, 20, 32)), groups * shared
    cx, dims = lm.Graph(), {}
    keys: Any = length
    if rng.random() < 0.5:
        keys, dims = cx.dim("keys", rng.choice((0, 1)), 130), {"keys": length}
    x = cx.tensor((queries, model), name="x")
    normed = normed_by(rng, x, cx.tensor((model,), name="g"))
    q = projected(rng, normed, "q", heads * width).reshape(queries, groups, shared, width)
    k, v = (cx.tensor((groups, keys, width), name=name) for name in "kv")
    scores = q.permute(1, 2, 0, 3) @ k.unsqueeze(1).mT
    weights = masked(rng, scores * rng.choice((1.0, 0.3, -0.5, 4.0)), queries, keys).softmax(-1)
    mixed = (weights @ v.unsqueeze(1)).permute(2, 0, 1, 3).flatten(1)
    projected(rng, mixed, "o", model).output("y")
    if rng.random() < 0.4:
        projected(rng, normed, "beside", rng.choice((1, 5, 24))).relu().output("z")
    graph = cx.graph()
    return Case(graph, drawn(graph, dims, rng.randrange(1 << 30)), dims, {})


def normed_by(rng: random.Random, x: lm.Tensor, g: lm.Tensor) -> lm.Tensor:
    scale = ((x * x).mean(-1, keepdim=True) + 1e-5).rsqrt()
    kind = rng.choice(("plain", "weighted", "added", "none"))
    if kind == "none":
        return x
    y = x * scale if rng.random() < 0.5 else scale * x
    if kind == "weighted":
        return y * g
    return y + g if kind == "added" else y


def projected(rng: random.Random, x: lm.Tensor, name: str, columns: int) -> lm.Tensor:
    rows = x.extents[-1]
    if rng.random() < 0.7:
        return x @ x.graph.tensor((columns, rows), name=name).mT
    return x @ x.graph.tensor((rows, columns), name=name)


def masked(rng: random.Random, scores: lm.Tensor, queries: int, keys: Any) -> lm.Tensor:
    cx = scores.graph
    at, query = cx.arange(keys).reshape(1, keys), cx.arange(queries).reshape(queries, 1)
    kind = rng.choice(("none", "causal", "window", "first", "bias"))
    if kind == "causal":
        return lm.where(at <= query + rng.randint(0, 60), scores, -np.inf)
    if kind == "window":
        return lm.where((at > query + 20) & (at <= query + 50), scores, -np.inf)
    if kind == "first":
        return scores + lm.where(at < rng.choice((1, 17, 64)), 0.0, -np.inf)
    return scores + cx.tensor((queries, keys), name="bias") if kind == "bias" else scores


def drawn(graph: Any, dims: dict[str, int], seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    given = {}
    for node in graph.by_op()["Input"]:
        shape = [int(n.evaluate(dims)) for n in node.types[0].shape]
        given[node.attrs.name] = rng.standard_normal(shape, np.float32)
    return given


@pytest.mark.parametrize("seed", mostly_long(range(200), 3))
def test_random_steps(seed: int) -> None:
    run = step(random.Random(seed))
    backend = cutting(checked("cuda"), random.Random(seed).choice((8, 16, 32)))
    check_case(compiled_on(backend, run.graph), run)
