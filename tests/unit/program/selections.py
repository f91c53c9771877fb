"""A Selection that has every kind of choice."""

from __future__ import annotations

import numpy as np

import luminal as lm


def every_kind() -> lm.Graph:
    """Every kind of term: a Loop, a Sort, a Scatter, gathers, two States of one name, a literal."""
    graph = lm.Graph()
    s = graph.dim("s", 1, 16)
    rows = graph.tensor((s, 4), name="the rows")
    start = graph.weight((4,), name="start")
    last, sums = lm.scan(lambda h, x: (h * x, (h + x).sum(0)), start, rows)
    last.output("last")
    sums.keep()
    values, order = rows.flip(0).sort(0)
    (values + graph.constant(np.arange(4, dtype=np.float32))).output("sorted")
    order.output("order")
    old, other = lm.State((8, 4), name="cache"), lm.State((8, 4), name="cache")
    graph.assign(old, graph.read(other))
    graph.assign(other, graph.read(old).slice_scatter(graph.tensor((2, 4), name="new"), 0, 3))
    picked = graph.tensor((3,), dtype=lm.int64, name="picked")
    graph.read(other)[picked].cumsum(0).output("scanned")
    return graph
