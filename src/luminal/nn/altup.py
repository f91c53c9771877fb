"""Several states of each token, of which a layer computes one and predicts the others: AltUp.

Baykal et al., arXiv 2301.13310, as Gemma 3n has it.
"""

from __future__ import annotations

from typing import Any

from luminal.base.dtypes import float32
from luminal.frontend.movement.views import stack
from luminal.frontend.tensor import Tensor
from luminal.nn import init
from luminal.nn.containers import ModuleList
from luminal.nn.linear import Linear
from luminal.nn.module import Module
from luminal.nn.norm import RMSNorm

_LEAST = 1e-5  # of a mean square that is divided by


class Streams(Module):
    """One state of a token to `count` ones, and those back to one; each as long as the first."""

    def __init__(self, hidden: int, count: int, dtype: Any = float32) -> None:
        self.spreading, self.merging = (
            ModuleList(Linear(hidden, hidden, False, dtype) for _ in range(count - 1))
            for _ in range(2)
        )

    def spread(self, x: Tensor) -> Tensor:
        """(..., hidden) to (..., count, hidden)."""
        length = _mean_square(x).sqrt()
        return stack([x, *(_of_length(linear(x), length) for linear in self.spreading)], -2)

    def merged(self, x: Tensor) -> Tensor:
        """(..., count, hidden) to (..., hidden)."""
        first = x[..., 0, :]
        length = _mean_square(first).sqrt()
        total = first
        for number, linear in enumerate(self.merging, 1):
            total = total + _of_length(linear(x[..., number, :]), length)
        return total * (1 / (1 + len(self.merging)))


def _mean_square(x: Tensor) -> Tensor:
    return x.square().mean(-1, keepdim=True)


def _of_length(x: Tensor, length: Tensor) -> Tensor:
    return x * (length / _mean_square(x).clamp(_LEAST).sqrt())


class AltUp(Module):
    """What a layer changes of `count` states of a token, of which it computes the `active` one.

    Names as in Hugging Face's Gemma 3n.
    """

    def __init__(
        self, hidden: int, count: int, active: int, eps: float, dtype: Any = float32
    ) -> None:
        self.count, self.active, self.scale = count, active, 1 / hidden
        self.correct_output_scale = init.parameter((hidden,), init.zeros, dtype)
        self.correction_coefs = Linear(count, count, False, dtype)
        self.prediction_coefs = Linear(count, count * count, False, dtype)
        self.modality_router = Linear(hidden, count, False, dtype)
        self.router_norm = RMSNorm(hidden, eps, dtype=dtype)

    def predicted(self, x: Tensor) -> Tensor:
        """(..., count, hidden) to the same shape: mixtures of the states, added to them."""
        mixing: Tensor = self.prediction_coefs(self._weights(x[..., self.active, :]))
        return x + mixing.unflatten(-1, (self.count, self.count)) @ x

    def corrected(self, predicted: Tensor, computed: Tensor) -> Tensor:
        """All states, (..., count, hidden), by how far the active one was from what is computed."""
        shares: Tensor = self.correction_coefs(self._weights(computed)) + 1
        missed = computed - predicted[..., self.active, :]
        return predicted + missed.unsqueeze(-2) * shares.unsqueeze(-1)

    def _weights(self, x: Tensor) -> Tensor:
        """A number of each state, from -1 to 1, (..., count)."""
        weights: Tensor = self.modality_router(self.router_norm(x) * self.scale).tanh()
        return weights
