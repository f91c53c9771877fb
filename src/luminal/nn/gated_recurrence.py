"""A linear recurrence whose decay the input steers: the real-gated linear recurrent unit.

De et al., arXiv 2402.19427 (Griffin).
"""

from __future__ import annotations

from typing import Any

from luminal.base.dtypes import bool_, float32
from luminal.frontend.creation import position
from luminal.frontend.handle import along
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.nn import init
from luminal.nn.cache import Positions
from luminal.nn.causal_convolution import CausalConvolution
from luminal.nn.feed_forward import activation_of
from luminal.nn.linear import Linear, near_zero
from luminal.nn.module import Module
from luminal.nn.recurrent_cache import RecurrentCache, RecurrentLayer, stepped

_SHARPNESS = 8.0  # the paper's c: decays stay near 1 while the gates still move them


class BlockGate(Module):
    """A sigmoid of a product by blocks: `heads` of neighbouring features have a matrix each."""

    def __init__(self, heads: int, width: int, dtype: Any = float32) -> None:
        self.heads = heads
        self.weight = init.parameter((heads, width, width), near_zero(width), dtype)
        self.bias = init.parameter((heads, width), init.zeros, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., heads * width) to the same shape, from 0 to 1."""
        split = x.unflatten(-1, (self.heads, 1, -1))
        weight = self.read(self.weight, x).cast(x.dtype)
        product = (split @ weight).squeeze(-2)
        return (product + self.read(self.bias, x)).flatten(-2).sigmoid()


class GatedRecurrence(RecurrentLayer):
    """`width` channels, each with a state that decays by what its gate says of the input.

    What enters is convolved over `taps` positions, gated, and scaled so that the state keeps its
    variance; the first position of a text enters whole. What leaves is times `activation` of
    another projection. `heads` divide the channels into the blocks of the gates.
    """

    def __init__(
        self, hidden: int, width: int, heads: int, taps: int, activation: str, dtype: Any = float32
    ) -> None:
        self.activation = activation_of(activation)
        self.linear_x = Linear(hidden, width, True, dtype)
        self.linear_y = Linear(hidden, width, True, dtype)
        self.linear_out = Linear(width, hidden, True, dtype)
        self.conv1d = CausalConvolution(width, taps, True, dtype)
        self.input_gate = BlockGate(heads, width // heads, dtype)
        self.recurrent_gate = BlockGate(heads, width // heads, dtype)
        self.recurrent_param = init.parameter((width,), init.zeros, dtype)
        self.shapes = self.conv1d.kept, (width,)

    def forward(
        self,
        x: Tensor,
        angles: None = None,
        cache: RecurrentCache | None = None,
        positions: Positions = 0,
    ) -> Tensor:
        """x (..., s, hidden) to the same shape."""
        window, state = self.before(cache, x, positions)
        u, window = self.conv1d(self.linear_x(x), window)
        # The rate is a softplus of a weight: whatever training does to it, a state never grows.
        rate = self.read(self.recurrent_param, x).cast(x.dtype).softplus() * -_SHARPNESS
        decay = self.recurrent_gate(u) * rate
        kept, share = decay.exp(), (1 - (decay * 2).exp()).sqrt()
        added = u * self.input_gate(u) * where(_starts(x, positions), 1.0, share)

        def step(state: Tensor, xs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            kept, added = xs
            state = state * kept + added
            return state, state

        state, y = stepped(step, state, (kept, added), x.ndim - 2)
        if cache is not None:
            cache.keep((window, state))
        return self.linear_out(y * self.activation(self.linear_y(x)))  # type: ignore[no-any-return]


def _starts(x: Tensor, positions: Positions) -> Tensor:
    """Which positions of x (..., s, features) begin a text, (..., s, 1) or (s, 1)."""
    if isinstance(positions, Tensor):
        return (positions == 0).unsqueeze(-1)
    graph, count = x.graph, x.extents[-2]
    is_first = (graph.extent(positions) + along(0, count)).eq(0)
    return position(graph, is_first, (count,), bool_).unsqueeze(-1)
