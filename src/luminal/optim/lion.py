"""Lion: steps of the sign of a momentum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luminal.frontend.tensor import Tensor
from luminal.optim.formula import Rate, Tensors, decayed, each, mixed, rate_of, signed
from luminal.optim.optimizer import Group, Optimizer, Parameters, Shared, Slots, Update


def lion_on_graph(
    parameters: Tensors,
    gradients: Tensors,
    exp_avgs: Tensors,
    lr: Rate,
    *,
    betas: Sequence[Rate] = (0.9, 0.99),
    weight_decay: float = 0.0,
    maximize: bool = False,
) -> tuple[list[Tensor], list[Tensor]]:
    """New parameters and exp_avgs: p - lr * (sign(b1 * m + (1 - b1) * g) + weight_decay * p).

    Then m = b2 * m + (1 - b2) * g. Chen et al. 2023, algorithm 2.
    """
    beta1, beta2 = betas

    def formula(p: Tensor, g: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        g = signed(g, maximize)
        # The step sees more of this gradient than the momentum keeps of it: that is why there are
        # two betas.
        direction = decayed(mixed(m, g, beta1).sign(), p, weight_decay)
        return p - rate_of(lr, p.dtype) * direction, mixed(m, g, beta2)

    new, moved = each("lion_on_graph", formula, parameters, gradients, exp_avgs)
    return new, moved


class Lion(Optimizer):
    """Lion; its rates are 3 to 10 times smaller than AdamW's, its decay as much larger."""

    def __init__(
        self,
        params: Parameters,
        lr: Any = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize)

    def slots(self, group: Group) -> dict[str, float]:
        """The momentum of each Parameter."""
        return {"exp_avg": 0.0}

    def update(
        self, group: Group, params: Tensors, gradients: Tensors, slots: Slots, shared: Shared
    ) -> Update:
        """Records the step of `lion_on_graph`."""
        new, moments = lion_on_graph(
            params, gradients, slots["exp_avg"], group["lr"],
            **{name: group[name] for name in ("betas", "weight_decay", "maximize")},
        )  # fmt: skip
        return Update(new, {"exp_avg": moments}, {})
