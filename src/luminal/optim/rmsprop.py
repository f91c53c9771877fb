"""RMSprop: steps of the gradient over the root of its square's running mean."""

from __future__ import annotations

from typing import Any

from luminal.frontend.tensor import Tensor
from luminal.optim.formula import Rate, Tensors, decayed, each, mixed, rate_of, signed
from luminal.optim.optimizer import Group, Optimizer, Parameters, Shared, Slots, Update


def rmsprop_on_graph(
    parameters: Tensors,
    gradients: Tensors,
    square_avgs: Tensors,
    lr: Rate,
    *,
    alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum: Rate = 0.0,
    momentum_buffers: Tensors | None = None,
    grad_avgs: Tensors | None = None,
    maximize: bool = False,
) -> tuple[list[Tensor], ...]:
    """New parameters, square_avgs, and the buffers and means that were given, in this order.

    v = alpha * v + (1 - alpha) * g**2; p - lr * g / (sqrt(v) + eps). With grad_avgs ("centered")
    the square of the gradient's mean is taken off v; with buffers b = momentum * b + the quotient
    is what p moves by. Hinton 2012, Graves 2013.
    """
    optional = [x for x in (momentum_buffers, grad_avgs) if x is not None]

    def formula(p: Tensor, g: Tensor, v: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        g = decayed(signed(g, maximize), p, weight_decay)
        v = mixed(v, g * g, alpha)
        means = [mixed(others[-1], g, alpha)] if grad_avgs is not None else []
        spread = v - means[0] * means[0] if means else v
        direction = g / (spread.sqrt() + eps)
        mu = rate_of(momentum, p.dtype)
        buffers = [mu * others[0] + direction] if momentum_buffers is not None else []
        moved = buffers[0] if buffers else direction
        return p - rate_of(lr, p.dtype) * moved, v, *buffers, *means

    return each("rmsprop_on_graph", formula, parameters, gradients, square_avgs, *optional)


class RMSprop(Optimizer):
    """The optimizer RMSprop, as torch.optim.RMSprop."""

    def __init__(
        self,
        params: Parameters,
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum,
            centered=centered, maximize=maximize,
        )  # fmt: skip

    def slots(self, group: Group) -> dict[str, float]:
        """The mean of squares, and what momentum and centering need."""
        names = ["square_avg"]
        names += ["momentum_buffer"] if group["momentum"] else []
        names += ["grad_avg"] if group["centered"] else []
        return dict.fromkeys(names, 0.0)

    def shared(self, group: Group) -> dict[str, int | float]:
        """The number of steps: nothing reads it, PyTorch's states have it."""
        return {"step": 0}

    def update(
        self, group: Group, params: Tensors, gradients: Tensors, slots: Slots, shared: Shared
    ) -> Update:
        """Records the step of `rmsprop_on_graph`."""
        names = ("alpha", "eps", "weight_decay", "momentum", "maximize")
        new, *moments = rmsprop_on_graph(
            params, gradients, slots["square_avg"], group["lr"],
            momentum_buffers=slots.get("momentum_buffer"), grad_avgs=slots.get("grad_avg"),
            **{name: group[name] for name in names},
        )  # fmt: skip
        counted = {"step": shared["step"] + 1}
        return Update(new, dict(zip(slots, moments, strict=True)), counted)


RMSProp = RMSprop
