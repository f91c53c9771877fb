"""Data parallel of a batch of 8 on 2 ranks is the program of a batch of 4, and sums over ranks."""

from __future__ import annotations

from collections import Counter

import luminal as lm
from luminal.distribute.mesh import Mesh
from luminal.hlir.attributes import IotaAttrs
from luminal.hlir.graph import Graph
from luminal.hlir.prune import pruned
from luminal.hlir.substitute import all_nodes
from luminal.nn import functional
from tests.distributed.whole import spread

ADDED = ("Add", "View", "Collective")
"""What a sum over ranks is made of."""


def recorded(batch: int) -> Graph:
    """A step of descent through an embedding, rotated heads, a causal mask and a convolution."""
    cx = lm.Graph()
    x, t = cx.tensor((batch, 6, 8), "float32", "x"), cx.tensor((batch, 6), "int64", "t")
    w, table = cx.weight((8, 8), "float32", "w"), cx.weight((12, 8), "float32", "e")
    kernel = cx.weight((4, 6, 3), "float32", "k")
    q = ((functional.embedding(t, table) + x) @ w).unflatten(-1, (2, 4)).transpose(1, 2)
    q = lm.cat([-q[..., 2:], q[..., :2]], -1) * 0.5 + q
    y = ((q @ q.mT).tril().softmax(-1) @ q).transpose(1, 2).flatten(2)
    y = functional.pad(functional.conv1d(y, kernel, None, 2, 1), (1, 2)).cumsum(-1)
    loss = y.square().flatten(1).sum(-1).sum()
    loss.backward()
    for weight in (w, kernel):
        assert weight.grad is not None
        cx.assign(weight, weight - weight.grad * 0.1)
    loss.output("loss")
    y.output("y")
    return pruned(cx.graph())


def operations(graph: Graph) -> Counter[str]:
    """The graph's operations but those that sums over ranks are made of, as texts."""
    texts: Counter[str] = Counter()
    for node in all_nodes(graph):
        if node.op.name not in (*ADDED, "Weight", "Input"):
            attrs = node.attrs.expr if isinstance(node.attrs, IotaAttrs) else node.attrs
            texts[f"{node.op.name} {attrs} {[*map(str, node.types)]}"] += 1
    return texts


def test_a_rank_runs_what_is_recorded_for_its_part() -> None:
    mesh = Mesh((2,), ("a",))
    out, _ = spread(recorded(8), mesh, {"x": (("a",), (), ()), "t": (("a",), ())}, {})
    assert operations(out.graph) == operations(recorded(4))
    assert len(out.rows) == 3
    for node in all_nodes(out.graph):
        assert "rank_" not in str(node.attrs), node
