"""Adam and AdamW: steps of the gradient's running mean over the root of that of its square."""

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
    each,
    mixed,
    rate_of,
    signed,
    with_decay,
)
from luminal.optim.moments import TwoMoments
from luminal.optim.optimizer import Group, Parameters, Shared, Slots, Update


def adam_on_graph(
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
    max_exp_avg_sqs: Tensors | None = None,
    maximize: bool = False,
) -> tuple[list[Tensor], ...]:
    """New parameters, exp_avgs, exp_avg_sqs (and max_exp_avg_sqs, which makes it AMSGrad).

    m = b1 * m + (1 - b1) * g; v = b2 * v + (1 - b2) * g**2; p - lr * m' / (sqrt(v') + eps), where
    ' divides by 1 - b**step; `step`: an int 0-d, 1 at the first. Decay adds weight_decay * p to g,
    or is decoupled: p shrinks by lr * weight_decay before. Kingma & Ba 2015, Reddi et al. 2018,
    Loshchilov & Hutter 2019.
    """
    beta1, beta2 = betas

    # Formed once for each dtype, not for each parameter: a step has a few scalar operations.
    @cache
    def scalars(dtype: DType) -> tuple[Rate, Tensor, Tensor]:
        rate = rate_of(lr, dtype)
        size = rate / bias_correction(beta1, step, dtype)
        return rate, size, bias_correction(beta2, step, dtype).rsqrt()

    def formula(p: Tensor, g: Tensor, m: Tensor, v: Tensor, *most: Tensor) -> tuple[Tensor, ...]:
        rate, size, scale = scalars(p.dtype)
        g = signed(g, maximize)
        p, g = with_decay(p, g, rate, weight_decay, decoupled_weight_decay)
        m, v = mixed(m, g, beta1), mixed(v, g * g, beta2)
        tops = tuple(maximum(top, v) for top in most)
        second = tops[0] if tops else v
        return p - size * (m / (second.sqrt() * scale + eps)), m, v, *tops

    moments = (exp_avgs, exp_avg_sqs, *([] if max_exp_avg_sqs is None else [max_exp_avg_sqs]))
    return each("adam_on_graph", formula, parameters, gradients, *moments)


class Adam(TwoMoments):
    """Adam, with decay in the gradient, as torch.optim.Adam; `amsgrad` never lets v shrink."""

    def __init__(
        self,
        params: Parameters,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
            maximize=maximize, decoupled_weight_decay=decoupled_weight_decay,
        )  # fmt: skip

    def slots(self, group: Group) -> dict[str, float]:
        """Both moments, and the greatest second one of AMSGrad."""
        most = {"max_exp_avg_sq": 0.0} if group["amsgrad"] else {}
        return super().slots(group) | most

    def update(
        self, group: Group, params: Tensors, gradients: Tensors, slots: Slots, shared: Shared
    ) -> Update:
        """Records the step of `adam_on_graph`."""
        names = ("betas", "eps", "weight_decay", "decoupled_weight_decay", "maximize")
        step = shared["step"] + 1
        new, *moments = adam_on_graph(
            params, gradients, slots["exp_avg"], slots["exp_avg_sq"], step, group["lr"],
            max_exp_avg_sqs=slots.get("max_exp_avg_sq"), **{name: group[name] for name in names},
        )  # fmt: skip
        return Update(new, dict(zip(slots, moments, strict=True)), {"step": step})


class AdamW(Adam):
    """Adam with decoupled weight decay, as torch.optim.AdamW."""

    def __init__(
        self,
        params: Parameters,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize,
            decoupled_weight_decay=True,
        )  # fmt: skip
