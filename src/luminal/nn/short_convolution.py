"""A gated short convolution in the place of attention: nothing older than its width is kept.

Liquid AI, arXiv 2511.23404 (LFM2).
"""

from __future__ import annotations

from typing import Any

from luminal.base.dtypes import float32
from luminal.frontend.tensor import Tensor
from luminal.nn.cache import Positions
from luminal.nn.causal_convolution import CausalConvolution
from luminal.nn.linear import Linear
from luminal.nn.recurrent_cache import RecurrentCache, RecurrentLayer


class ShortConvolution(RecurrentLayer):
    """Three projections of x: what is convolved over `width` positions, and gates before and after.

    `bias`: of the projections and of the convolution.
    """

    def __init__(self, hidden: int, width: int, bias: bool = False, dtype: Any = float32) -> None:
        self.in_proj = Linear(hidden, 3 * hidden, bias, dtype)
        self.conv1d = CausalConvolution(hidden, width, bias, dtype)
        self.out_proj = Linear(hidden, hidden, bias, dtype)
        self.shapes = (self.conv1d.kept,)

    def forward(
        self,
        x: Tensor,
        angles: None = None,
        cache: RecurrentCache | None = None,
        positions: Positions = 0,
    ) -> Tensor:
        """x (..., s, hidden) to the same shape."""
        (window,) = self.before(cache, x, positions)
        before, after, u = self.in_proj(x).chunk(3, -1)
        mixed, window = self.conv1d(before * u, window)
        if cache is not None:
            cache.keep((window,))
        return self.out_proj(after * mixed)  # type: ignore[no-any-return]
