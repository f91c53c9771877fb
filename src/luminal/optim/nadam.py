"""NAdam: Adam with Nesterov's momentum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

from luminal.base.dtypes import DType
from luminal.frontend.tensor import Tensor
from luminal.optim.formula import (
    Rate,
    Tensors,
    bias_correction,
    each,
    mixed,
    rate_of,
    signed,
    with_decay,
)
from luminal.optim.moments import TwoMoments
from luminal.optim.optimizer import Group, Parameters, Shared, Slots, Update


def _momentum(beta: Rate, decay: float, step: Tensor, dtype: DType) -> Tensor:
    """Dozat's schedule: beta * (1 - 0.96**(step * decay) / 2)."""
    return rate_of(beta, dtype) * (1 - 0.5 * (step.cast(dtype) * (decay * math.log(0.96))).exp())


def nadam_on_graph(
    parameters: Tensors,
    gradients: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    mu_product: Tensor,
    step: Tensor,
    lr: Rate,
    *,
    betas: Sequence[Rate] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum_decay: float = 4e-3,
    decoupled_weight_decay: bool = False,
    maximize: bool = False,
) -> tuple[list[Tensor], list[Tensor], list[Tensor], Tensor]:
    """New parameters, exp_avgs, exp_avg_sqs and mu_product, the product of all momenta (0-d).

    p moves by lr / (sqrt(v') + eps) times (1 - mu) * g / (1 - product) + mu_next * m /
    (1 - product * mu_next). Dozat 2016.
    """
    beta1, beta2 = betas
    product = mu_product * _momentum(beta1, momentum_decay, step, mu_product.dtype)

    @cache
    def scalars(dtype: DType) -> tuple[Rate, Tensor, Tensor, Tensor]:
        rate, so_far = rate_of(lr, dtype), product.cast(dtype)
        mu, following = (_momentum(beta1, momentum_decay, k, dtype) for k in (step, step + 1))
        of_gradient = rate * (1 - mu) / (1 - so_far)
        of_mean = rate * following / (1 - so_far * following)
        return rate, of_gradient, of_mean, bias_correction(beta2, step, dtype).rsqrt()

    def formula(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rate, of_gradient, of_mean, scale = scalars(p.dtype)
        g = signed(g, maximize)
        p, g = with_decay(p, g, rate, weight_decay, decoupled_weight_decay)
        m, v = mixed(m, g, beta1), mixed(v, g * g, beta2)
        return p - (of_gradient * g + of_mean * m) / (v.sqrt() * scale + eps), m, v

    new, firsts, seconds = each(
        "nadam_on_graph", formula, parameters, gradients, exp_avgs, exp_avg_sqs
    )
    return new, firsts, seconds, product


class NAdam(TwoMoments):
    """The optimizer NAdam, as torch.optim.NAdam."""

    def __init__(
        self,
        params: Parameters,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
            momentum_decay=momentum_decay, decoupled_weight_decay=decoupled_weight_decay,
            maximize=maximize,
        )  # fmt: skip

    def shared(self, group: Group) -> dict[str, int | float]:
        """The number of steps, and the product of their momenta."""
        return super().shared(group) | {"mu_product": 1.0}

    def update(
        self, group: Group, params: Tensors, gradients: Tensors, slots: Slots, shared: Shared
    ) -> Update:
        """Records the step of `nadam_on_graph`."""
        step = shared["step"] + 1
        new, firsts, seconds, product = nadam_on_graph(
            params, gradients, slots["exp_avg"], slots["exp_avg_sq"], shared["mu_product"], step,
            **{name: value for name, value in group.items() if name in self.defaults},
        )  # fmt: skip
        moments = {"exp_avg": firsts, "exp_avg_sq": seconds}
        return Update(new, moments, {"step": step, "mu_product": product})
