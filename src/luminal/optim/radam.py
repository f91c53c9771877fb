"""RAdam: Adam that divides by the second moment only once that is known well enough."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from luminal.base.dtypes import DType, float64
from luminal.frontend.pointwise.binary import where
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


def _rectification(beta2: Rate, step: Tensor) -> tuple[Tensor, Tensor]:
    """The factor of the step, and whether there is one: float64, since r cancels in float32."""
    longest = 2 / (1 - beta2) - 1
    correction = bias_correction(beta2, step, float64)
    length = longest - 2 * step.cast(float64) * (1 - correction) / correction
    # PyTorch's bound; the paper has 4.
    is_known = length > 5
    inside = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    return where(is_known, inside, 0).sqrt() * correction.sqrt(), is_known


def radam_on_graph(
    parameters: Tensors,
    gradients: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    step: Tensor,
    lr: Rate,
    *,
    betas: Sequence[Rate] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled_weight_decay: bool = False,
    maximize: bool = False,
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """New parameters, exp_avgs, exp_avg_sqs: p - lr * m' * r / (sqrt(v) + eps), or p - lr * m'.

    The second while the length r of the second moment's average is at most 5. Liu et al. 2020.
    """
    beta1, beta2 = betas
    factor, is_known = _rectification(beta2, step)

    @cache
    def scalars(dtype: DType) -> tuple[Rate, Tensor, Tensor]:
        rate = rate_of(lr, dtype)
        return rate, rate / bias_correction(beta1, step, dtype), factor.cast(dtype)

    def formula(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rate, size, rectified = scalars(p.dtype)
        g = signed(g, maximize)
        p, g = with_decay(p, g, rate, weight_decay, decoupled_weight_decay)
        m, v = mixed(m, g, beta1), mixed(v, g * g, beta2)
        adapted = where(is_known, rectified / (v.sqrt() + eps), 1.0)
        return p - size * m * adapted, m, v

    new, firsts, seconds = each(
        "radam_on_graph", formula, parameters, gradients, exp_avgs, exp_avg_sqs
    )
    return new, firsts, seconds


class RAdam(TwoMoments):
    """The optimizer RAdam, as torch.optim.RAdam."""

    def __init__(
        self,
        params: Parameters,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
            decoupled_weight_decay=decoupled_weight_decay, maximize=maximize,
        )  # fmt: skip

    def update(
        self, group: Group, params: Tensors, gradients: Tensors, slots: Slots, shared: Shared
    ) -> Update:
        """Records the step of `radam_on_graph`."""
        step = shared["step"] + 1
        new, firsts, seconds = radam_on_graph(
            params, gradients, slots["exp_avg"], slots["exp_avg_sq"], step,
            **{name: value for name, value in group.items() if name in self.defaults},
        )  # fmt: skip
        return Update(new, {"exp_avg": firsts, "exp_avg_sq": seconds}, {"step": step})
