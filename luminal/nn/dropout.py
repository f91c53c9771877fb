"""Dropout layers: elements or channels that training leaves out at random (see `nn.keyed`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from luminal.errors import InputError, ShapeError
from luminal.frontend import random
from luminal.frontend.binary import where
from luminal.frontend.handle import describe
from luminal.frontend.tensor import Tensor
from luminal.nn.module import Module
from luminal.nn.randomness import next_key

# What x becomes where selu networks leave it out: selu's limit towards -infinity.
SELU_FLOOR = -1.7580993408473766


class _Dropout(Module):
    """`p` is the probability of being left out; `inplace` is accepted and changes nothing."""

    ranks: Sequence[int] | None = None
    """The ranks of inputs that it takes; None: every rank."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        if not 0 <= p <= 1:
            raise InputError(f"{type(self).__name__}: p is {p}; it is a probability in 0..1")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x; x itself outside of training."""
        if self.ranks is not None and x.ndim not in self.ranks:
            ranks = " or ".join(map(str, self.ranks))
            raise ShapeError(f"{type(self).__name__}: {describe(x)}; it takes {ranks} dims")
        if not self.training or self.p == 0:
            return x
        if self.p == 1:
            return x.graph.full(x.extents, 0, x.dtype)
        return self.dropped(x, next_key(type(self).__name__))

    def dropped(self, x: Tensor, key: Tensor) -> Tensor:
        """x with what `key` says left out."""
        raise NotImplementedError

    def kept(self, x: Tensor, key: Tensor, whole: int) -> Tensor:
        """Where x is kept; the last `whole` dims are left out together."""
        shape = x.extents[: x.ndim - whole]
        found = random.bernoulli(key, 1 - self.p, shape)
        return found.unsqueeze(tuple(range(len(shape), x.ndim))) if whole else found


class Dropout(_Dropout):
    """Elements become 0, the others are divided by 1 - p. Srivastava et al. 2014."""

    def dropped(self, x: Tensor, key: Tensor) -> Tensor:
        """See the class."""
        return where(self.kept(x, key, 0), x / (1 - self.p), 0)


class _ChannelDropout(_Dropout):
    """Whole channels become 0, the others are divided by 1 - p."""

    dims = 1

    def dropped(self, x: Tensor, key: Tensor) -> Tensor:
        """See the class."""
        return where(self.kept(x, key, self.dims), x / (1 - self.p), 0)


class Dropout1d(_ChannelDropout):
    """Whole channels of ([batch,] channels, length) become 0. Tompson et al., arXiv 1411.4280."""

    dims, ranks = 1, (2, 3)


class Dropout2d(_ChannelDropout):
    """Whole channels of ([batch,] channels, height, width) become 0."""

    dims, ranks = 2, (3, 4)


class Dropout3d(_ChannelDropout):
    """Whole channels of ([batch,] channels, depth, height, width) become 0."""

    dims, ranks = 3, (4, 5)


class AlphaDropout(_Dropout):
    """Elements take selu's lowest value; mean and variance stay. arXiv 1706.02515."""

    def dropped(self, x: Tensor, key: Tensor) -> Tensor:
        """See the class."""
        return self._alpha(x, self.kept(x, key, 0))

    def _alpha(self, x: Tensor, kept: Tensor) -> Tensor:
        q = 1 - self.p
        scale = 1 / math.sqrt(q + SELU_FLOOR**2 * q * self.p)
        return where(kept, x, SELU_FLOOR) * scale - scale * self.p * SELU_FLOOR


class FeatureAlphaDropout(AlphaDropout):
    """AlphaDropout of whole channels (dims 0 and 1)."""

    def dropped(self, x: Tensor, key: Tensor) -> Tensor:
        """See the class."""
        return self._alpha(x, self.kept(x, key, max(x.ndim - 2, 0)))
