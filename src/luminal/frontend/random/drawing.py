"""Functions that draw, as PyTorch calls them, and dropout: their keys come from `nn.keyed`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from luminal.base.errors import InputError, ShapeError
from luminal.frontend.creation import zeros_like
from luminal.frontend.handle import Extent, axis_of, describe, work_dtype
from luminal.frontend.movement.embedding import one_hot
from luminal.frontend.pointwise.activation import rrelu as middle
from luminal.frontend.pointwise.binary import where
from luminal.frontend.random import keyed
from luminal.frontend.random.keyed import next_key
from luminal.frontend.reduce.normalization import softmax
from luminal.frontend.reduce.reductions import argmax, cumsum, greatest
from luminal.frontend.reduce.searching import searchsorted
from luminal.frontend.reduce.sorting import topk

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def bernoulli(x: Tensor, p: float | None = None, *, key: Tensor | None = None) -> Tensor:
    """1 with the probability that x says at each place, or with probability `p`; else 0.

    In x's dtype, as torch.bernoulli; `lm.random.bernoulli` gives bools.
    """
    key = next_key("bernoulli", x.graph) if key is None else key
    return keyed.bernoulli(key, x if p is None else p, x.extents).cast(x.dtype)


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
    key = next_key("multinomial", x.graph) if key is None else key
    count = x.graph.extent(num_samples)
    weights = x.cast(work_dtype(x.dtype))
    if not replacement:
        x.graph.require(count <= x.extents[-1], "multinomial: samples without replacement")
        noise = keyed.exponential(key, x.extents, dtype=weights.dtype)
        return topk(weights / noise, count).indices
    return chosen(weights, keyed.uniform(key, (*x.extents[:-1], count), dtype=weights.dtype))


def chosen(weights: Tensor, shares: Tensor) -> Tensor:
    """The positions whose part of the running sum holds each share (0 <= share < 1) of the whole.

    None whose weight is 0, but for the first where all are.
    """
    sums = cumsum(weights, -1)
    # A share of the whole sum falls into the interval of one weight, whose length is its
    # probability.
    positions = searchsorted(sums, shares * sums[..., -1:], right=True)
    places = weights.graph.iota(weights.extents, -1)
    last = greatest(where(weights > 0, places, 0), (weights.ndim - 1,), keepdim=True)
    return positions.minimum(last)


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
    key = next_key("gumbel_softmax", logits.graph) if key is None else key
    work = work_dtype(logits.dtype)
    noise = keyed.gumbel(key, logits.extents, work)
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
    key = next_key("rrelu", x.graph) if key is None else key
    slopes = keyed.uniform(key, x.extents, lower, upper, work_dtype(x.dtype))
    return where(x > 0, x, (x * slopes).cast(x.dtype))


# --- dropout --------------------------------------------------------------------------------------


# What x becomes where selu networks leave it out: selu's limit towards -infinity.
SELU_FLOOR = -1.7580993408473766


def dropout(
    x: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    key: Tensor | None = None,
) -> Tensor:
    """x in which, in training, each element is 0 with probability `p`, else divided by 1 - p.

    Srivastava et al. 2014. Here and below: x itself outside of training; `key` is by default one of
    `nn.keyed`'s (GraphError outside of it); `inplace` changes nothing; InputError for other p.
    """
    return _scaled("dropout", x, p, training, key, whole=0)


def dropout1d(
    x: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    key: Tensor | None = None,
) -> Tensor:
    """Dropout of whole channels of ([batch,] channels, length). arXiv 1411.4280."""
    _check_rank("dropout1d", x, (2, 3))
    return _scaled("dropout1d", x, p, training, key, whole=1)


def dropout2d(
    x: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    key: Tensor | None = None,
) -> Tensor:
    """Dropout of whole channels of (batch, channels, height, width).

    Three dims are (batch, channels, length), as PyTorch's: without a batch say unsqueeze(0).
    """
    _check_rank("dropout2d", x, (3, 4))
    return _scaled("dropout2d", x, p, training, key, whole=x.ndim - 2)


def dropout3d(
    x: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    key: Tensor | None = None,
) -> Tensor:
    """Dropout of whole channels of ([batch,] channels, depth, height, width)."""
    _check_rank("dropout3d", x, (4, 5))
    return _scaled("dropout3d", x, p, training, key, whole=3)


def alpha_dropout(
    x: Tensor,
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
    *,
    key: Tensor | None = None,
) -> Tensor:
    """Elements take selu's lowest value; mean and variance stay. arXiv 1706.02515."""
    return _alpha("alpha_dropout", x, p, training, key, whole=0)


def feature_alpha_dropout(
    x: Tensor,
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
    *,
    key: Tensor | None = None,
) -> Tensor:
    """`alpha_dropout` of whole channels (dims 0 and 1)."""
    if training and p != 0 and x.ndim < 2:
        raise ShapeError(f"feature_alpha_dropout: {describe(x)}; it takes 2 dims or more")
    return _alpha("feature_alpha_dropout", x, p, training, key, whole=max(x.ndim - 2, 0))


def _check_rank(what: str, x: Tensor, ranks: Sequence[int]) -> None:
    if x.ndim not in ranks:
        raise ShapeError(f"{what}: {describe(x)}; it takes {' or '.join(map(str, ranks))} dims")


def _scaled(
    what: str, x: Tensor, p: float, training: bool, key: Tensor | None, whole: int
) -> Tensor:
    """Zeros where x is left out; the last `whole` dims are left out together."""
    kept = _kept(what, x, p, training, key, whole)
    return kept if kept is x or p == 1 else where(kept, x / (1 - p), 0)


def _alpha(
    what: str, x: Tensor, p: float, training: bool, key: Tensor | None, whole: int
) -> Tensor:
    kept = _kept(what, x, p, training, key, whole)
    if kept is x or p == 1:
        return kept
    q = 1 - p
    scale = 1 / math.sqrt(q + SELU_FLOOR**2 * q * p)
    return where(kept, x, SELU_FLOOR) * scale - scale * p * SELU_FLOOR


def _kept(what: str, x: Tensor, p: float, training: bool, key: Tensor | None, whole: int) -> Tensor:
    """Where x is kept (bool), or the result itself where nothing is drawn: x, or zeros."""
    if not 0 <= p <= 1:
        raise InputError(f"{what}: p is {p}; it is a probability in 0..1")
    if not training or p == 0:
        return x
    if p == 1:
        return zeros_like(x)
    shape = x.extents[: x.ndim - whole]
    is_kept = keyed.bernoulli(next_key(what, x.graph) if key is None else key, 1 - p, shape)
    return is_kept.unsqueeze(tuple(range(len(shape), x.ndim))) if whole else is_kept
