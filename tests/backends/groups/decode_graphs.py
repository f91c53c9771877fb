"""Attention of few queries, as a decode step has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import luminal as lm
from luminal.backends import device_costs
from luminal.backends.backend import Backend
from luminal.backends.c_backend import CBackend
from luminal.base.costs import Costs
from luminal.base.dtypes import int32
from luminal.hlir.graph import Graph
from luminal.models.decoder import Decoder
from luminal.models.llama import Llama, LlamaConfig
from luminal.nn.cache import KVCache
from luminal.nn.paged import PagedCache, Places, Segment
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


def mixed(model: Decoder, caches: Sequence[KVCache], most: int) -> Graph:
    """A step of a server over blocks of a paged cache: chunks of prompts, then rows of a token."""
    graph = lm.Graph("mixed")
    prompts, rows = graph.dim("prompts", 0, most), graph.dim("rows", 0, most)
    chunk = graph.dim("chunk", 0, 16 * most)
    tokens = (prompts * chunk + rows,)
    names = "ids", "positions", "blocks", "offsets"
    ids, positions, blocks, offsets = (graph.tensor(tokens, int32, name) for name in names)
    heads = graph.tensor((prompts, graph.dim("length", 1, most)), int32, "heads")
    tables = graph.tensor((rows, graph.dim("width", 1, most)), int32, "tables")
    places = Places(blocks, offsets, (Segment(heads, chunk), Segment(tables, 1)))
    paged = [PagedCache.of(cache, places) for cache in caches]
    model.logits(model.model(ids, paged, positions)).output("logits")
    return graph.graph()
