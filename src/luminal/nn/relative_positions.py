"""What belongs to distances of a query and a key, laid out by the keys, and the way back.

Shaw et al., arXiv 1803.02155; Dai et al., arXiv 1901.02860.
"""

from __future__ import annotations

from luminal.frontend.handle import Extent, along
from luminal.frontend.movement.views import mapped
from luminal.frontend.tensor import Tensor
from luminal.shape.expression import all_of


def by_key(x: Tensor, reach: Extent) -> Tensor:
    """x (..., q, 2 * reach + 1), whose column n is of the key n - reach after the query, as
    (..., q, q), whose column is the key; 0 for keys further away. One view.
    """
    far = x.graph.extent(reach)
    shape = (*x.extents[:-1], x.extents[-2])
    places = [along(k, n) for k, n in enumerate(shape)]
    column = places[-1] - places[-2] + far
    near = all_of([column >= 0, column <= far * 2])
    return mapped(x, shape, [*places[:-1], column], near)


def by_distance(x: Tensor, reach: Extent) -> Tensor:
    """x (..., q, q) by keys as (..., q, 2 * reach + 1) by distances; 0 where there is no key."""
    far = x.graph.extent(reach)
    shape = (*x.extents[:-1], far * 2 + 1)
    places = [along(k, n) for k, n in enumerate(shape)]
    key = places[-1] + places[-2] - far
    there = all_of([key >= 0, key < x.extents[-1]])
    return mapped(x, shape, [*places[:-1], key], there)
