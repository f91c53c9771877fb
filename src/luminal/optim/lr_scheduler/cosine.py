"""Schedules along a cosine. Loshchilov & Hutter 2017."""

from __future__ import annotations

import math
from collections.abc import Sequence

from luminal.optim.lr_scheduler.schedule import BaseRates, LRScheduler
from luminal.optim.ranges import AT_LEAST_0, COUNT, check


def annealed(start: float, end: float, done: float) -> float:
    """From start (done is 0) to end (done is 1) along half a wave."""
    return end + (start - end) * (1 + math.cos(math.pi * done)) / 2


class CosineAnnealingLR(LRScheduler):
    """From the base rate to `eta_min` in `T_max` steps along half a wave, and back."""

    def __init__(self, lr: BaseRates, T_max: int, eta_min: float = 0.0) -> None:
        super().__init__(lr)
        check("CosineAnnealingLR", COUNT, T_max=T_max)
        check("CosineAnnealingLR", AT_LEAST_0, eta_min=eta_min)
        self.T_max, self.eta_min = T_max, eta_min

    def rates(self, epoch: int) -> list[float]:
        """The rates on the falling half of a cosine."""
        return [annealed(base, self.eta_min, epoch / self.T_max) for base in self.base_lrs]

    def following(self, rates: Sequence[float], epoch: int) -> list[float]:
        """The distance to eta_min shrinks as that of its own rates does."""
        if epoch == 0:
            return list(rates)
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # the rates before are at eta_min
            rise = annealed(0.0, 1.0, 1 / self.T_max)
            pairs = zip(rates, self.base_lrs, strict=True)
            return [rate + (base - self.eta_min) * rise for rate, base in pairs]
        ratio = annealed(1.0, 0.0, epoch / self.T_max) / annealed(
            1.0, 0.0, (epoch - 1) / self.T_max
        )
        return [self.eta_min + (rate - self.eta_min) * ratio for rate in rates]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half waves down to `eta_min` of T_0, T_0 * T_mult, T_0 * T_mult**2 ... steps."""

    def __init__(self, lr: BaseRates, T_0: int, T_mult: int = 1, eta_min: float = 0.0) -> None:
        super().__init__(lr)
        check("CosineAnnealingWarmRestarts", COUNT, T_0=T_0, T_mult=T_mult)
        check("CosineAnnealingWarmRestarts", AT_LEAST_0, eta_min=eta_min)
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min

    def rates(self, epoch: int) -> list[float]:
        """The rates on the wave that this step lies in."""
        length = self.T_0
        while epoch >= length:
            epoch -= length
            length *= self.T_mult
        return [annealed(base, self.eta_min, epoch / length) for base in self.base_lrs]
