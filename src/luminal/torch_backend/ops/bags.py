"""Sums, means and maxima of the rows of bags of ids (embedding_bag), and their gradients.

Of PyTorch's four results only the first is a user's. Of the others, which its backward operators
read, ours read the places of maxima; the rest stays 0 in the shapes that PyTorch plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import luminal as lm
from luminal.frontend.movement.embedding import MODES
from luminal.torch_backend.ops.gradients import pulled
from luminal.torch_backend.ops.refusals import refuse_outside, refuse_where
from luminal.torch_backend.ops.registry import Planned, row

Tensor = lm.Tensor
MAX = MODES.index("max")
NOWHERE = 2**62  # greater than any position


@row("_embedding_bag", "_embedding_bag_forward_only", knows_results=True)
def embedding_bag(
    weight: Tensor, ids: Tensor, offsets: Tensor, by_frequency: bool = False, mode: int = 0,
    sparse: bool = False, factors: Tensor | None = None, has_end: bool = False, padding: int = -1,
    *, results: Sequence[Planned],
) -> tuple[Tensor, ...]:  # fmt: skip
    refuse_outside(ids, weight.shape[0])
    _refuse_offsets(ids, offsets, has_end)
    bags = _bags(weight, ids, offsets, mode, factors, has_end, padding)
    others = [lm.zeros(held.shape, held.dtype) for held in results[1:]]
    if mode == MAX:
        others[-1] = _places_of_maxima(weight, ids, offsets, bags, padding).cast(offsets.dtype)
    return bags, *others


def _bags(
    weight: Tensor, ids: Tensor, offsets: Tensor, mode: int, factors: Tensor | None, has_end: bool,
    padding: int, *, by_frequency: bool = False,
) -> Tensor:  # fmt: skip
    return lm.embedding_bag(
        ids, weight, offsets, MODES[mode], factors, has_end, None if padding < 0 else padding,
        scale_grad_by_freq=by_frequency,
    )  # fmt: skip


def _refuse_offsets(ids: Tensor, offsets: Tensor, has_end: bool) -> None:
    """Bags begin at the first id, and end with the last one: PyTorch itself has, for ids beyond
    the end, two meanings.
    """
    count, last = ids.extents[0], offsets[-1:]
    for wrong, rule in (
        (offsets[:1] != 0, "the first offset is not 0"),
        (last != count if has_end else last > count, f"the last offset does not fit {count} ids"),
    ):
        refuse_where(wrong, RuntimeError(f"embedding_bag: {rule}"))


def _places_of_maxima(
    weight: Tensor, ids: Tensor, offsets: Tensor, maxima: Tensor, padding: int
) -> Tensor:
    """(bags, width): the first id of each bag whose row holds the maximum; -1 where none does."""
    count, bags = ids.extents[0], maxima.extents[0]
    position = lm.iota((count,), 0)
    bag = lm.searchsorted(offsets, position, right=True) - 1
    holds = (weight[ids] == maxima[bag.minimum(bags - 1)]) & (ids != padding).unsqueeze(1)
    ranked = lm.where(holds, position.unsqueeze(1), NOWHERE)
    # One bag more than there are: ids before the first offset or behind the end would otherwise
    # write into a bag.
    nowhere = lm.full((bags + 1, maxima.extents[1]), NOWHERE, lm.int64)
    first = nowhere.index_reduce(0, bag, ranked, "amin")[:bags]
    return lm.where(first == NOWHERE, -1, ids[first.minimum(count - 1)])


@row("_embedding_bag_backward")
def of_weight(
    g: Tensor, ids: Tensor, offsets: Tensor, bag: Tensor, sizes: Tensor, places: Tensor,
    count: Any, by_frequency: bool, mode: int, sparse: bool, factors: Tensor | None,
    padding: int = -1,
) -> Tensor:  # fmt: skip
    zeros = lm.zeros((count, g.extents[1]), g.dtype)
    if mode == MAX:
        return zeros.scatter_add(0, places.maximum(0), lm.where(places < 0, 0, g))

    def bags(weight: Tensor) -> Tensor:
        has_end = _has_end(g, offsets)
        return _bags(
            weight, ids, offsets, mode, factors, has_end, padding, by_frequency=by_frequency
        )

    return pulled(bags, g, zeros)[0]


@row("_embedding_bag_per_sample_weights_backward")
def of_factors(
    g: Tensor, weight: Tensor, ids: Tensor, offsets: Tensor, bag: Tensor, mode: int,
    padding: int = -1,
) -> Tensor:  # fmt: skip
    def bags(factors: Tensor) -> Tensor:
        return _bags(weight, ids, offsets, mode, factors, _has_end(g, offsets), padding)

    return pulled(bags, g, lm.ones(ids.shape, weight.dtype))[0]


def _has_end(g: Tensor, offsets: Tensor) -> bool:
    """Is the last offset where the last bag ends? Then there is one more than there are bags."""
    return bool(offsets.shape != g.shape[:1])
