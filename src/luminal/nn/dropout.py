"""Dropout layers: elements or channels that training leaves out at random (see `nn.keyed`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from luminal.base.errors import InputError
from luminal.frontend.random import drawing
from luminal.frontend.tensor import Tensor
from luminal.nn.module import Module


class _Dropout(Module):
    """`p` is the probability of being left out; `inplace` is accepted and changes nothing."""

    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        if not 0 <= p <= 1:
            raise InputError(f"{type(self).__name__}: p is {p}; it is a probability in 0..1")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x; x itself outside of training."""
        return type(self).function(x, self.p, self.training)


class Dropout(_Dropout):
    """Elements become 0, the others are divided by 1 - p. Srivastava et al. 2014."""

    function = drawing.dropout


class Dropout1d(_Dropout):
    """Whole channels of ([batch,] channels, length) become 0. Tompson et al., arXiv 1411.4280."""

    function = drawing.dropout1d


class Dropout2d(_Dropout):
    """Whole channels of (batch, channels, height, width) or (batch, channels, length) become 0."""

    function = drawing.dropout2d


class Dropout3d(_Dropout):
    """Whole channels of ([batch,] channels, depth, height, width) become 0."""

    function = drawing.dropout3d


class AlphaDropout(_Dropout):
    """Elements take selu's lowest value; mean and variance stay. arXiv 1706.02515."""

    function = drawing.alpha_dropout


class FeatureAlphaDropout(_Dropout):
    """AlphaDropout of whole channels (dims 0 and 1)."""

    function = drawing.feature_alpha_dropout
