"""Attention of few queries, as a decode step has it."""

from __future__ import annotations

from dataclasses import replace

import luminal as lm
from luminal.backends import device_costs
from luminal.backends.backend import Backend
from luminal.backends.c_backend import CBackend
from luminal.base.costs import Costs
from luminal.base.dtypes import int32
from luminal.hlir.graph import Graph
from luminal.models.llama import Llama, LlamaConfig
from luminal.schedule.vectors.vector_target import VectorTarget


def few(target: VectorTarget) -> Costs:
    """Costs by which programs of tests are large enough to be cut into many chunks."""
    costs = device_costs.gpu(target)
    return replace(costs, shares=replace(costs.shares, work=16, chunk=64, blocks=1))


def cutting(backend: CBackend, lanes: int) -> Backend:
    groups = replace(backend.groups, lanes=lanes, most=1024, shared_bytes=32 << 10)
    return replace(backend, costs_of=few, groups=groups)


def decode(layers: int, *, past: int = 255, texts: int = 1) -> Graph:
    """A step of a Llama of a billion weights, of one token of some texts over `past`."""
    model = Llama(LlamaConfig(2048, 8192, layers, 32, 8, 64, 128256, 2048), lm.bfloat16)
    batch = None if texts == 1 else texts
    caches = model.make_caches(past + 1, batch=batch)
    graph = lm.Graph("decode")
    shape = (1,) if batch is None else (batch, 1)
    ids, at = graph.tensor(shape, int32, "ids"), graph.dim("past", 0, past)
    model(ids, caches, at, last_only=True).output("logits")
    return graph.graph()
