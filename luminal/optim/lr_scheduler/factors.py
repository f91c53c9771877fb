"""Schedules that multiply the base rate by a factor."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence

from luminal.errors import InputError
from luminal.optim.lr_scheduler.schedule import BaseRates, LRScheduler

Factor = Callable[[int], float]


class _FactorLR(LRScheduler):
    """Base rates times `factor(epoch)`; in a chain factors multiply."""

    @abstractmethod
    def factor(self, epoch: int) -> float:
        """What base rates are multiplied by."""

    def rates(self, epoch: int) -> list[float]:
        """The base rates times the factor."""
        factor = self.factor(epoch)
        return [base * factor for base in self.base_lrs]

    def following(self, rates: Sequence[float], epoch: int) -> list[float]:
        """Times the quotient of two factors."""
        before = self.factor(epoch - 1) if epoch else 1.0
        ratio = self.factor(epoch) / before if before else 1.0
        return [rate * ratio for rate in rates]


class ConstantLR(_FactorLR):
    """Times `factor` for the first `total_iters` steps."""

    def __init__(self, lr: BaseRates, factor: float = 1 / 3, total_iters: int = 5) -> None:
        super().__init__(lr)
        if not 0 <= factor <= 1:
            raise InputError(f"ConstantLR: factor={factor}; it is at least 0 and at most 1")
        self.first, self.total_iters = factor, total_iters

    def factor(self, epoch: int) -> float:
        """`factor`, then 1."""
        return self.first if epoch < self.total_iters else 1.0


class LinearLR(_FactorLR):
    """From `start_factor` to `end_factor` along a line of `total_iters` steps: a warm-up."""

    def __init__(
        self,
        lr: BaseRates,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
    ) -> None:
        super().__init__(lr)
        if not 0 < start_factor <= 1:
            raise InputError(f"LinearLR: start_factor={start_factor}; it is above 0, at most 1")
        if not 0 <= end_factor <= 1:
            raise InputError(f"LinearLR: end_factor={end_factor}; it is at least 0 and at most 1")
        self.start, self.end, self.total_iters = start_factor, end_factor, total_iters

    def factor(self, epoch: int) -> float:
        """On the line, then `end_factor`."""
        done = min(epoch, self.total_iters) / self.total_iters if self.total_iters else 1.0
        return self.start + (self.end - self.start) * done


class StepLR(_FactorLR):
    """Times `gamma` every `step_size` steps."""

    def __init__(self, lr: BaseRates, step_size: int, gamma: float = 0.1) -> None:
        super().__init__(lr)
        self.step_size, self.gamma = step_size, gamma

    def factor(self, epoch: int) -> float:
        """A power of gamma."""
        return float(self.gamma ** (epoch // self.step_size))


class MultiStepLR(_FactorLR):
    """Times `gamma` at each of the milestones."""

    def __init__(self, lr: BaseRates, milestones: Sequence[int], gamma: float = 0.1) -> None:
        super().__init__(lr)
        self.milestones, self.gamma = sorted(milestones), gamma

    def factor(self, epoch: int) -> float:
        """A power of gamma."""
        return float(self.gamma ** bisect_right(self.milestones, epoch))


class ExponentialLR(_FactorLR):
    """Times `gamma` every step."""

    def __init__(self, lr: BaseRates, gamma: float) -> None:
        super().__init__(lr)
        self.gamma = gamma

    def factor(self, epoch: int) -> float:
        """A power of gamma."""
        return float(self.gamma**epoch)


class PolynomialLR(_FactorLR):
    """(1 - epoch / total_iters) ** power, then 0."""

    def __init__(self, lr: BaseRates, total_iters: int = 5, power: float = 1.0) -> None:
        super().__init__(lr)
        self.total_iters, self.power = total_iters, power

    def factor(self, epoch: int) -> float:
        """The polynomial."""
        return float((1 - min(epoch, self.total_iters) / self.total_iters) ** self.power)


class MultiplicativeLR(_FactorLR):
    """Times `lr_lambda(epoch)` at every step from the first."""

    def __init__(self, lr: BaseRates, lr_lambda: Factor) -> None:
        super().__init__(lr)
        self.lr_lambda = lr_lambda

    def factor(self, epoch: int) -> float:
        """The product so far."""
        return math.prod(self.lr_lambda(k) for k in range(1, epoch + 1))


class LambdaLR(LRScheduler):
    """Base rates times `lr_lambda(epoch)`: one function, or a list with one for each group."""

    def __init__(self, lr: BaseRates, lr_lambda: Factor | Sequence[Factor]) -> None:
        super().__init__(lr)
        groups = len(self.base_lrs)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise InputError(f"LambdaLR: {len(self.lr_lambdas)} functions for {groups} groups")

    def rates(self, epoch: int) -> list[float]:
        """By the functions."""
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [base * factor(epoch) for base, factor in pairs]
