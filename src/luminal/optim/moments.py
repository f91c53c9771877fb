"""What the optimizers have in common that keep running means of gradients and of their squares."""

from __future__ import annotations

from luminal.optim.optimizer import Group, Optimizer


class TwoMoments(Optimizer):
    """An Optimizer with Adam's States: both moments of each parameter, and a count of steps."""

    def slots(self, group: Group) -> dict[str, float]:
        """Adam's two moments of each Parameter."""
        return {"exp_avg": 0.0, "exp_avg_sq": 0.0}

    def shared(self, group: Group) -> dict[str, int | float]:
        """The number of steps."""
        return {"step": 0}
