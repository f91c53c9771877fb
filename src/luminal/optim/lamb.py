"""LAMB: Adam's direction, scaled for each parameter to its own norm."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from luminal.base.dtypes import DType
from luminal.frontend.pointwise.binary import where
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
from luminal.optim.moments import TwoMoments
from luminal.optim.optimizer import Group, Parameters, Shared, Slots, Update


def lamb_on_graph(
    parameters: Tensors,
    gradients: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    step: Tensor,
    lr: Rate,
    *,
    betas: Sequence[Rate] = (0.9, 0.999),
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    maximize: bool = False,
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """New parameters, exp_avgs, exp_avg_sqs: p - lr * (norm(p) / norm(u)) * u.

    u = m' / (sqrt(v') + eps) + weight_decay * p of Adam's moments; the ratio is 1 where a norm is
    0. `step`: an int 0-d, 1 at the first. You et al. 2020, algorithm 2, phi the identity.
    """
    beta1, beta2 = betas

    @cache
    def scalars(dtype: DType) -> tuple[Rate, Tensor, Tensor]:
        # Scalars of a step are formed once for each dtype, not once for each Parameter.
        first = 1 / bias_correction(beta1, step, dtype)
        return rate_of(lr, dtype), first, bias_correction(beta2, step, dtype).rsqrt()

    def formula(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rate, first, second = scalars(p.dtype)
        g = signed(g, maximize)
        m, v = mixed(m, g, beta1), mixed(v, g * g, beta2)
        u = decayed(m * first / (v.sqrt() * second + eps), p, weight_decay)
        weight_norm, update_norm = (x.square().sum().sqrt() for x in (p, u))
        # Weights that begin at zero would otherwise stay there.
        ratio = where((weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, 1.0)
        return p - rate * ratio * u, m, v

    new, firsts, seconds = each(
        "lamb_on_graph", formula, parameters, gradients, exp_avgs, exp_avg_sqs
    )
    return new, firsts, seconds


class LAMB(TwoMoments):
    """LAMB, for large batches."""

    def __init__(
        self,
        params: Parameters,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize
        )

    def update(
        self, group: Group, params: Tensors, gradients: Tensors, slots: Slots, shared: Shared
    ) -> Update:
        """Records the step of `lamb_on_graph`."""
        step = shared["step"] + 1
        new, firsts, seconds = lamb_on_graph(
            params, gradients, slots["exp_avg"], slots["exp_avg_sq"], step, group["lr"],
            **{name: group[name] for name in ("betas", "eps", "weight_decay", "maximize")},
        )  # fmt: skip
        return Update(new, {"exp_avg": firsts, "exp_avg_sq": seconds}, {"step": step})
