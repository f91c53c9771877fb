"""Drawn attentions whose sequence is cut over a mesh: shapes, masks, meshes, dtypes, derivatives.

A seed is one case. Queries, keys and values are inputs that are marked, and weights of the results
make a loss, of which gradients are taken.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

import luminal as lm
import luminal.nn.functional as F
from luminal.distribute.distribute import Distributed
from luminal.distribute.mesh import Mesh
from luminal.nn.attention import CausalAttention
from luminal.nn.cache import KVCache
from tests.distributed.whole import on_one, on_ranks

Array = np.ndarray[Any, Any]
MESHES = (
    *(Mesh((2,), ("sequence",)), Mesh((3,), ("sequence",)), Mesh((4,), ("sequence",))),
    *(Mesh((2, 2), ("data", "sequence")), Mesh((2, 2), ("sequence", "tensor"))),
)
MASKS = (
    "none",
    "causal",
    "causal",
    "window",
    "padding",
    "hidden rows",
    "added",
    "capped",
    "slopes",
)


@dataclass(frozen=True)
class Attention:
    """An attention on a mesh. `deal`: how the sequence is cut, in the words of a spec."""

    mesh: Mesh
    deal: str
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    width: int
    mask: str
    dropout: float
    dtype: str
    is_trained: bool

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs by name."""
        q = self.batch, self.heads, self.queries, self.width
        k = self.batch, self.kv_heads, self.keys, self.width
        shapes: dict[str, tuple[int, ...]] = {"q": q, "k": k, "v": k, "w": q}
        if self.mask in ("padding", "hidden rows"):
            shapes["mask"] = self.batch, 1, 1, self.keys
        if self.mask == "hidden rows":
            shapes["mask"] = self.batch, 1, self.queries, self.keys
        if self.mask == "added":
            shapes["mask"] = self.queries, self.keys
        return shapes

    @property
    def sends(self) -> int:
        """The bytes of keys and values that a rank sends, and of their gradients."""
        ranks = self.mesh.ranks("sequence")
        batch = self.batch // (2 if "data" in self.mesh.names else 1)
        heads = self.kv_heads // (2 if "tensor" in self.mesh.names else 1)
        block = int(self.deal.partition("/")[2] or -(-self.keys // ranks))
        room = -(-self.keys // (ranks * block)) * block
        elements = 2 * batch * heads * room * self.width
        size = 2 if self.dtype == "bfloat16" else 4
        # Gradients of what was cast are float32 until they have been added.
        by_pass = [elements * size] + [elements * (size + 4)] * self.is_trained
        return sum(by_pass) * (ranks - 1)


def drawn(seed: int) -> Attention:
    """The attention of a seed."""
    rng = random.Random(f"ring {seed}")
    mesh = rng.choice(MESHES)
    kv_heads = rng.choice((2, 4) if "tensor" in mesh.names else (1, 2, 3))
    mask = rng.choice(MASKS)
    queries = keys = rng.randint(2, 14)
    if mask in ("none", "padding", "hidden rows", "added") and rng.random() < 0.4:
        keys = rng.randint(2, 14)
    return Attention(
        mesh, rng.choice(("sequence", "sequence", "sequence/1", "sequence/2")),
        rng.choice((2, 4) if "data" in mesh.names else (1, 2)), kv_heads * rng.choice((1, 1, 2, 3)),
        kv_heads, queries, keys, rng.choice((4, 8)), mask,
        0.3 if mask in ("none", "causal") and rng.random() < 0.3 else 0.0,
        rng.choice(("float32", "float32", "bfloat16")), rng.random() < 0.7,
    )  # fmt: skip


def arrays_of(case: Attention, seed: int) -> dict[str, Array]:
    """Inputs of a case."""
    rng = np.random.default_rng(seed)
    dtype = ml_dtypes.bfloat16 if case.dtype == "bfloat16" else np.float32
    arrays = {name: rng.standard_normal(shape).astype(dtype) for name, shape in case.shapes.items()}
    if case.mask in ("padding", "hidden rows"):
        arrays["mask"] = rng.random(case.shapes["mask"]) < 0.7
        if case.mask == "padding":  # no row without keys
            arrays["mask"][..., 0] = True
    return arrays


def attended(case: Attention, x: dict[str, lm.Tensor]) -> lm.Tensor:
    """What the queries of a case attend."""
    q, k, v, mask = x["q"], x["k"], x["v"], x.get("mask")
    if case.mask in ("window", "capped", "slopes"):
        options: dict[str, Any] = {
            "window": {"window": 3}, "capped": {"softcap": 5.0},
            "slopes": {"slopes": np.linspace(0.1, 1, case.heads)},
        }[case.mask]  # fmt: skip
        layer = CausalAttention(case.heads, case.kv_heads, case.width**-0.5, **options)
        wide = q.dtype if q.dtype is lm.float64 else lm.float32
        return layer.attend(q.cast(wide), k.cast(wide), v.cast(wide)).cast(q.dtype)
    key = lm.random.key(7) if case.dropout else None
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=case.mask == "causal", enable_gqa=True,
        dropout_p=case.dropout, key_of_dropout=key,
    )  # fmt: skip


def graph_of(case: Attention, *, is_cut: bool = True) -> lm.Graph:
    """The program of a case: what is attended, and the gradients if it is trained."""
    graph = lm.Graph()
    with lm.recording(graph):
        x = {}
        for name, shape in case.shapes.items():
            dtype = "bool" if name == "mask" and case.mask != "added" else case.dtype
            x[name] = graph.tensor(shape, dtype, name=name)
            if is_cut and name != "mask":
                batch = "data" if "data" in case.mesh.names else None
                heads = "tensor" if "tensor" in case.mesh.names else None
                x[name] = x[name].shard(batch, heads, case.deal)
        y = attended(case, x)
        y.output("y")
        if case.is_trained:
            inputs = [x[name] for name in "qkv"]
            loss = (y.cast("float32" if case.dtype == "bfloat16" else case.dtype) * x["w"]).sum()
            for name, gradient in zip("qkv", lm.grad(loss, inputs), strict=True):
                gradient.output(f"d{name}")
    return graph


def on_mesh(case: Attention, seed: int) -> tuple[dict[str, Array], Distributed]:
    """The results of a case on the ranks of its mesh, and the program that they ran."""
    arrays = arrays_of(case, seed)
    graph = graph_of(case).graph()
    used = {node.attrs.name for node in graph.by_op()["Input"]}
    given = {name: array for name, array in arrays.items() if name in used}
    results, _, out = on_ranks(graph, case.mesh, None, {}, given)
    return results, out


def expected(case: Attention, seed: int) -> tuple[dict[str, Array], dict[str, Array]]:
    """The results of a case on one rank, and in float64."""
    arrays = arrays_of(case, seed)
    exact = {n: a if a.dtype == np.bool_ else a.astype(np.float64) for n, a in arrays.items()}
    alone = on_one(graph_of(case, is_cut=False).graph(), arrays)[0]
    wide = on_one(graph_of(replace(case, dtype="float64"), is_cut=False).graph(), exact)[0]
    return alone, wide


@dataclass(frozen=True)
class Decode:
    """Queries at the end of a text whose cache is cut by positions over the axis "sequence"."""

    ranks: int
    deal: str
    rows: int
    room: int
    is_integers: bool  # positions are data, not a dim


def cached(case: Decode, *, is_cut: bool = True) -> tuple[lm.Graph, KVCache]:
    """The program of a step: keys and values are kept, and attended by 6 heads."""
    rng = np.random.default_rng(case.room)
    cache = KVCache.make(3, case.room, 4)
    for state in (cache.keys, cache.values):
        state.set(rng.standard_normal(state.shape).astype(np.float32))
        state.spec = ((), (case.deal,), ()) if is_cut else None
    layer, graph = CausalAttention(6, 3, 0.5), lm.Graph()
    with lm.recording(graph):
        q, k, v = (
            graph.tensor((heads, case.rows, 4), name=name)
            for name, heads in (("q", 6), ("k", 3), ("v", 3))
        )
        at: Any = lm.dim("at", 0, case.room - case.rows)
        if case.is_integers:
            at = graph.tensor((case.rows,), "int64", name="at")
        cache.attend(layer, q, k, v, at).output("y")
    return graph, cache
