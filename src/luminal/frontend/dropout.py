"""Elements or channels left out at random, as torch.nn.functional has it (keys: see `nn.keyed`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from luminal.errors import InputError, ShapeError
from luminal.frontend import random
from luminal.frontend.binary import where
from luminal.frontend.creation import zeros_like
from luminal.frontend.handle import describe
from luminal.frontend.keys import next_key

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

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
    """In training each element is 0 with probability `p`, else divided by 1 - p.

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
    """As `dropout`, of whole channels of ([batch,] channels, length). arXiv 1411.4280."""
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
    """As `dropout`, of whole channels of (batch, channels, height, width).

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
    """As `dropout`, of whole channels of ([batch,] channels, depth, height, width)."""
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
    found = random.bernoulli(next_key(what) if key is None else key, 1 - p, shape)
    return found.unsqueeze(tuple(range(len(shape), x.ndim))) if whole else found
