"""Adamax: steps of the gradient's running mean over the greatest gradient of late."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from luminal.base.dtypes import DType
from luminal.frontend.pointwise.binary import maximum
from luminal.frontend.tensor import Tensor
from luminal.optim.formula import (
    Rate,
    Tensors,
    bias_correction,
    decayed,
    each,
    mixed,
    rate_of,
    signed,
)
from luminal.optim.optimizer import Group, Optimizer, Parameters, Shared, Slots, Update


def adamax_on_graph(
    parameters: Tensors,
    gradients: Tensors,
    exp_avgs: Tensors,
    exp_infs: Tensors,
    step: Tensor,
    lr: Rate,
    *,
    betas: Sequence[Rate] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    maximize: bool = False,
) -> tuple[list[Tensor], ...]:
    """New parameters, exp_avgs and exp_infs.

    m = b1 * m + (1 - b1) * g; u = max(b2 * u, |g| + eps); p - lr / (1 - b1**step) * m / u; `step`:
    an int 0-d, 1 at the first. Kingma & Ba 2015, section 7.1.
    """
    beta1, beta2 = betas

    @cache
    def rate(dtype: DType) -> Rate:
        return rate_of(lr, dtype) / bias_correction(beta1, step, dtype)

    def formula(p: Tensor, g: Tensor, m: Tensor, u: Tensor) -> tuple[Tensor, ...]:
        g = decayed(signed(g, maximize), p, weight_decay)
        m, u = mixed(m, g, beta1), maximum(beta2 * u, g.abs() + eps)
        return p - rate(p.dtype) * (m / u), m, u

    return each("adamax_on_graph", formula, parameters, gradients, exp_avgs, exp_infs)


class Adamax(Optimizer):
    """The optimizer Adamax, as torch.optim.Adamax."""

    def __init__(
        self,
        params: Parameters,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize
        )

    def slots(self, group: Group) -> dict[str, float]:
        """The mean of gradients, and the greatest of late."""
        return {"exp_avg": 0.0, "exp_inf": 0.0}

    def shared(self, group: Group) -> dict[str, int | float]:
        """The number of steps."""
        return {"step": 0}

    def update(
        self, group: Group, params: Tensors, gradients: Tensors, slots: Slots, shared: Shared
    ) -> Update:
        """Records the step of `adamax_on_graph`."""
        names = ("betas", "eps", "weight_decay", "maximize")
        step = shared["step"] + 1
        new, *moments = adamax_on_graph(
            params, gradients, slots["exp_avg"], slots["exp_inf"], step, group["lr"],
            **{name: group[name] for name in names},
        )  # fmt: skip
        return Update(new, dict(zip(slots, moments, strict=True)), {"step": step})
