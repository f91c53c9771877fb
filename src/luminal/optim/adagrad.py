"""Adagrad: steps of the gradient over the root of the sum of its squares."""

from __future__ import annotations

from functools import cache
from typing import Any

from luminal.base.dtypes import DType
from luminal.frontend.tensor import Tensor
from luminal.optim.formula import Rate, Tensors, decayed, each, rate_of, signed
from luminal.optim.optimizer import Group, Optimizer, Parameters, Shared, Slots, Update


def adagrad_on_graph(
    parameters: Tensors,
    gradients: Tensors,
    sums: Tensors,
    step: Tensor,
    lr: Rate,
    *,
    lr_decay: float = 0.0,
    weight_decay: float = 0.0,
    eps: float = 1e-10,
    maximize: bool = False,
) -> tuple[list[Tensor], list[Tensor]]:
    """New parameters and sums: s = s + g**2; p - lr' * g / (sqrt(s) + eps).

    lr' = lr / (1 + (step - 1) * lr_decay); `step`: an int 0-d, 1 at the first. Duchi et al. 2011.
    """

    @cache
    def rate(dtype: DType) -> Rate:
        return rate_of(lr, dtype) / (1 + (step.cast(dtype) - 1) * lr_decay)

    def formula(p: Tensor, g: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        g = decayed(signed(g, maximize), p, weight_decay)
        # The sum only grows, so rates only fall: what RMSprop replaced by a running mean.
        s = s + g * g
        return p - rate(p.dtype) * (g / (s.sqrt() + eps)), s

    new, total = each("adagrad_on_graph", formula, parameters, gradients, sums)
    return new, total


class Adagrad(Optimizer):
    """The optimizer Adagrad, as torch.optim.Adagrad."""

    def __init__(
        self,
        params: Parameters,
        lr: Any = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr=lr, lr_decay=lr_decay, weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value, eps=eps, maximize=maximize,
        )  # fmt: skip

    def slots(self, group: Group) -> dict[str, float]:
        """The sum of squares."""
        return {"sum": group["initial_accumulator_value"]}

    def shared(self, group: Group) -> dict[str, int | float]:
        """The number of steps."""
        return {"step": 0}

    def update(
        self, group: Group, params: Tensors, gradients: Tensors, slots: Slots, shared: Shared
    ) -> Update:
        """Records the step of `adagrad_on_graph`."""
        names = ("lr_decay", "weight_decay", "eps", "maximize")
        step = shared["step"] + 1
        new, sums = adagrad_on_graph(
            params, gradients, slots["sum"], step, group["lr"],
            **{name: group[name] for name in names},
        )  # fmt: skip
        return Update(new, {"sum": sums}, {"step": step})
