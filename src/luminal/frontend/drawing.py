"""Functions that draw, as PyTorch calls them: the key is one of `nn.keyed`'s, or `key=`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luminal.errors import ShapeError
from luminal.frontend import random
from luminal.frontend.activation import rrelu as middle
from luminal.frontend.binary import where
from luminal.frontend.embedding import one_hot
from luminal.frontend.handle import Extent, axis_of, describe, work_dtype
from luminal.frontend.keys import next_key
from luminal.frontend.logits import softmax
from luminal.frontend.ordered import cumsum
from luminal.frontend.reduce import argmax, greatest
from luminal.frontend.search import searchsorted
from luminal.frontend.sorting import topk

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def bernoulli(x: Tensor, p: float | None = None, *, key: Tensor | None = None) -> Tensor:
    """1 with the probability that x says at each place, or with probability `p`; else 0.

    In x's dtype, as torch.bernoulli; `lm.random.bernoulli` gives bools.
    """
    key = next_key("bernoulli") if key is None else key
    return random.bernoulli(key, x if p is None else p, x.extents).cast(x.dtype)


def multinomial(
    x: Tensor, num_samples: Extent, replacement: bool = False, *, key: Tensor | None = None
) -> Tensor:
    """`num_samples` positions (int64) along the last dim of x, of one or two dims.

    Each with a probability proportional to x >= 0. Without `replacement` a position comes once (the
    greatest of x / exponential noise, Efraimidis and Spirakis 2006), and where fewer are above 0,
    others follow; PyTorch raises there, and for negative x. Else by the running sum of x.
    """
    if x.ndim not in (1, 2):
        raise ShapeError(f"multinomial: {describe(x)}; it takes one or two dims")
    key = next_key("multinomial") if key is None else key
    count = x.graph.extent(num_samples)
    weights = x.cast(work_dtype(x.dtype))
    if not replacement:
        x.graph.require(count <= x.extents[-1], "multinomial: samples without replacement")
        noise = random.exponential(key, x.extents, dtype=weights.dtype)
        return topk(weights / noise, count).indices
    return chosen(weights, random.uniform(key, (*x.extents[:-1], count), dtype=weights.dtype))


def chosen(weights: Tensor, shares: Tensor) -> Tensor:
    """The positions whose part of the running sum holds each share (0 <= share < 1) of the whole.

    None whose weight is 0, but for the first where all are.
    """
    sums = cumsum(weights, -1)
    found = searchsorted(sums, shares * sums[..., -1:], right=True)
    places = weights.graph.iota(weights.extents, -1)
    last = greatest(where(weights > 0, places, 0), (weights.ndim - 1,), keepdim=True)
    return found.minimum(last)


def gumbel_softmax(
    logits: Tensor,
    tau: float = 1.0,
    hard: bool = False,
    eps: float = 1e-10,
    dim: int = -1,
    *,
    key: Tensor | None = None,
) -> Tensor:
    """softmax((logits + Gumbel noise) / tau) along `dim`. Jang et al., arXiv 1611.01144.

    With `hard` 1 at the greatest and 0 elsewhere, with the soft ones' derivative. `eps` is unused,
    as PyTorch's.
    """
    axis = axis_of("gumbel_softmax", dim, logits.ndim)
    key = next_key("gumbel_softmax") if key is None else key
    work = work_dtype(logits.dtype)
    noise = random.gumbel(key, logits.extents, work)
    soft = softmax((logits.cast(work) + noise) / tau, axis)
    if hard:
        chosen = one_hot(argmax(soft, axis), logits.extents[axis], work).movedim(-1, axis)
        soft = chosen - soft.stop_gradient() + soft
    return soft.cast(logits.dtype) if logits.dtype.is_storage else soft


def rrelu(
    x: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
    *,
    key: Tensor | None = None,
) -> Tensor:
    """x above 0, else x times a slope: in training random in lower..upper, else their middle.

    Xu et al., arXiv 1505.00853. `inplace` is accepted and changes nothing.
    """
    if not training:
        return middle(x, lower, upper)
    key = next_key("rrelu") if key is None else key
    slopes = random.uniform(key, x.extents, lower, upper, work_dtype(x.dtype))
    return where(x > 0, x, (x * slopes).cast(x.dtype))
