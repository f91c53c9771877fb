"""Stochastic gradient descent, plain and with momentum."""

from __future__ import annotations

from typing import Any

from luminal.base.errors import InputError
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.optim.formula import Rate, Tensors, decayed, each, rate_of, signed
from luminal.optim.optimizer import Group, Optimizer, Parameters, Shared, Slots, Update


def sgd_on_graph(
    parameters: Tensors,
    gradients: Tensors,
    lr: Rate,
    *,
    weight_decay: float = 0.0,
    maximize: bool = False,
) -> list[Tensor]:
    """p - lr * (g + weight_decay * p) of each parameter."""

    def formula(p: Tensor, g: Tensor) -> tuple[Tensor]:
        return (p - rate_of(lr, p.dtype) * decayed(signed(g, maximize), p, weight_decay),)

    (new,) = each("sgd_on_graph", formula, parameters, gradients)
    return new


def sgd_momentum_on_graph(
    parameters: Tensors,
    gradients: Tensors,
    buffers: Tensors,
    lr: Rate,
    *,
    momentum: Rate = 0.9,
    dampening: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    maximize: bool = False,
    step: Tensor | None = None,
) -> tuple[list[Tensor], list[Tensor]]:
    """New parameters and buffers: b = momentum * b + (1 - dampening) * g, p - lr * b.

    The first step (`step` is 1, an int 0-d) takes b = g; without a step that holds only where
    dampening is 0. With `nesterov` p moves by g + momentum * b. Sutskever et al. 2013.
    """

    def formula(p: Tensor, g: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        g = decayed(signed(g, maximize), p, weight_decay)
        mu = rate_of(momentum, p.dtype)
        moved = mu * b + (1 - dampening) * g
        if step is not None:
            moved = where(step == 1, g, moved)
        direction = g + mu * moved if nesterov else moved
        return p - rate_of(lr, p.dtype) * direction, moved

    new, moved = each("sgd_momentum_on_graph", formula, parameters, gradients, buffers)
    return new, moved


class SGD(Optimizer):
    """Gradient descent with momentum, as torch.optim.SGD."""

    def __init__(
        self,
        params: Parameters,
        lr: Any = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
            nesterov=nesterov, maximize=maximize,
        )  # fmt: skip

    def check(self, group: Group) -> None:
        """Raises InputError for Nesterov's momentum where there is none."""
        super().check(group)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"]):
            raise InputError("SGD: nesterov needs momentum > 0 and dampening 0")

    def slots(self, group: Group) -> dict[str, float]:
        """A buffer where there is momentum."""
        return {"momentum_buffer": 0.0} if group["momentum"] else {}

    def shared(self, group: Group) -> dict[str, int | float]:
        """The step counts only where the first one is another."""
        return {"step": 0} if group["momentum"] and group["dampening"] else {}

    def update(
        self, group: Group, params: Tensors, gradients: Tensors, slots: Slots, shared: Shared
    ) -> Update:
        """Records the step of `sgd_on_graph`, or of `sgd_momentum_on_graph`."""
        options = {name: group[name] for name in ("weight_decay", "maximize")}
        if not slots:
            return Update(sgd_on_graph(params, gradients, group["lr"], **options), {}, {})
        now = {name: count + 1 for name, count in shared.items()}
        options |= {name: group[name] for name in ("momentum", "dampening", "nesterov")}
        new, buffers = sgd_momentum_on_graph(
            params, gradients, slots["momentum_buffer"], group["lr"], step=now.get("step"),
            **options,
        )  # fmt: skip
        return Update(new, {"momentum_buffer": buffers}, now)
