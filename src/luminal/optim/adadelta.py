"""Adadelta: steps whose size follows from the steps before, over the size of gradients."""

from __future__ import annotations

from typing import Any

from luminal.frontend.tensor import Tensor
from luminal.optim.formula import Rate, Tensors, decayed, each, mixed, rate_of, signed
from luminal.optim.optimizer import Group, Optimizer, Parameters, Shared, Slots, Update


def adadelta_on_graph(
    parameters: Tensors,
    gradients: Tensors,
    square_avgs: Tensors,
    acc_deltas: Tensors,
    lr: Rate,
    *,
    rho: float = 0.9,
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    maximize: bool = False,
) -> tuple[list[Tensor], ...]:
    """New parameters, square_avgs and acc_deltas.

    v = rho * v + (1 - rho) * g**2; d = g * sqrt((u + eps) / (v + eps)); u = rho * u + (1 - rho) *
    d**2; p - lr * d. Zeiler, arXiv 1212.5701.
    """

    def formula(p: Tensor, g: Tensor, v: Tensor, u: Tensor) -> tuple[Tensor, ...]:
        g = decayed(signed(g, maximize), p, weight_decay)
        v = mixed(v, g * g, rho)
        move = g * ((u + eps).sqrt() / (v + eps).sqrt())
        return p - rate_of(lr, p.dtype) * move, v, mixed(u, move * move, rho)

    return each("adadelta_on_graph", formula, parameters, gradients, square_avgs, acc_deltas)


class Adadelta(Optimizer):
    """The optimizer Adadelta, as torch.optim.Adadelta."""

    def __init__(
        self,
        params: Parameters,
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize
        )

    def slots(self, group: Group) -> dict[str, float]:
        """The means of the squares of gradients and of steps."""
        return {"square_avg": 0.0, "acc_delta": 0.0}

    def shared(self, group: Group) -> dict[str, int | float]:
        """The number of steps: nothing reads it, PyTorch's states have it."""
        return {"step": 0}

    def update(
        self, group: Group, params: Tensors, gradients: Tensors, slots: Slots, shared: Shared
    ) -> Update:
        """Records the step of `adadelta_on_graph`."""
        names = ("rho", "eps", "weight_decay", "maximize")
        new, *moments = adadelta_on_graph(
            params, gradients, slots["square_avg"], slots["acc_delta"], group["lr"],
            **{name: group[name] for name in names},
        )  # fmt: skip
        counted = {"step": shared["step"] + 1}
        return Update(new, dict(zip(slots, moments, strict=True)), counted)
