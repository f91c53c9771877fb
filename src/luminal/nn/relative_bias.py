"""Numbers added to scores by the distance of key and query. Raffel et al., arXiv 1910.10683."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from luminal.base.dtypes import float32
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import Array, Extent
from luminal.frontend.tensor import Tensor
from luminal.memory.parameter import Parameter
from luminal.nn import init
from luminal.nn.module import Module


class RelativeBias(Module):
    """A number for each head and bucket of distances; `weight` is (buckets, heads).

    Small distances have a bucket each, up to `farthest` their widths grow, all beyond share one.
    `both_ways`: half of the buckets are for keys after the query, else these are as distance 0.
    """

    def __init__(
        self,
        buckets: int,
        heads: int,
        farthest: int = 128,
        both_ways: bool = True,
        dtype: Any = float32,
    ) -> None:
        self.farthest, self.both_ways = farthest, both_ways
        self.weight: Parameter = init.parameter((buckets, heads), init.normal, dtype)
        one_way = buckets // 2 if both_ways else buckets
        before = _buckets(one_way, farthest)[::-1]  # of distances -farthest .. 0
        self.rows = np.concatenate((before, before[-2::-1] + one_way)) if both_ways else before

    def forward(self, graph: Recorder, queries: Extent, keys: Extent, past: Extent = 0) -> Tensor:
        """(heads, queries, keys); query i is at position past + i."""
        here = graph.arange(queries) + graph.constant(past)
        distances = graph.arange(keys) - here.unsqueeze(-1)
        last = self.farthest if self.both_ways else 0
        # A table over distances, made when the layer is: a run reads it, and computes no logarithm.
        numbers = distances.clip(-self.farthest, last) + self.farthest
        weight = graph.weight_of(self.weight)
        return graph.constant(self.rows)[numbers].embedding(weight).permute(2, 0, 1)


def _buckets(count: int, farthest: int) -> Array:
    """The bucket of each distance from 0 to `farthest`, among `count`."""
    exact = count // 2
    distances = np.arange(farthest + 1)
    # In float32 as the reference does it: at borders of buckets another rounding is another bucket.
    far = np.maximum(distances, 1).astype(np.float32) / np.float32(exact)
    grown = np.log(far) / np.float32(math.log(farthest / exact)) * np.float32(count - exact)
    wide = np.minimum(exact + grown.astype(np.int32), count - 1)
    return np.where(distances < exact, distances, wide).astype(np.int32)
