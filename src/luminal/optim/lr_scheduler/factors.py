"""Schedules that multiply the base rate by a factor."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from luminal.base.errors import InputError
from luminal.optim.lr_scheduler.schedule import BaseRates, LRScheduler
from luminal.optim.ranges import (
    AT_LEAST_0,
    AT_LEAST_0_INT,
    COUNT,
    SHARE,
    SHARE_ABOVE_0,
    check,
    check_all,
)

Factor = Callable[[int], float]


def _check_function(what: str, lr_lambda: Any) -> None:
    if not callable(lr_lambda):
        raise InputError(f"{what}: lr_lambda={lr_lambda!r}; it must be a function of the epoch")


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
        check("ConstantLR", SHARE, factor=factor)
        check("ConstantLR", AT_LEAST_0_INT, total_iters=total_iters)
        self.first, self.total_iters = factor, total_iters

    def factor(self, epoch: int) -> float:
        """Gives `factor` for the first steps, then 1."""
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
        check("LinearLR", SHARE_ABOVE_0, start_factor=start_factor)
        check("LinearLR", SHARE, end_factor=end_factor)
        check("LinearLR", AT_LEAST_0_INT, total_iters=total_iters)
        self.start, self.end, self.total_iters = start_factor, end_factor, total_iters

    def factor(self, epoch: int) -> float:
        """Gives a number on the line, then `end_factor`."""
        done = min(epoch, self.total_iters) / self.total_iters if self.total_iters else 1.0
        return self.start + (self.end - self.start) * done


class StepLR(_FactorLR):
    """Times `gamma` every `step_size` steps."""

    def __init__(self, lr: BaseRates, step_size: int, gamma: float = 0.1) -> None:
        super().__init__(lr)
        check("StepLR", COUNT, step_size=step_size)
        check("StepLR", AT_LEAST_0, gamma=gamma)
        self.step_size, self.gamma = step_size, gamma

    def factor(self, epoch: int) -> float:
        """A power of gamma."""
        return float(self.gamma ** (epoch // self.step_size))


class MultiStepLR(_FactorLR):
    """Times `gamma` at each of the milestones."""

    def __init__(self, lr: BaseRates, milestones: Sequence[int], gamma: float = 0.1) -> None:
        super().__init__(lr)
        check_all("MultiStepLR", AT_LEAST_0_INT, "milestones", milestones)
        check("MultiStepLR", AT_LEAST_0, gamma=gamma)
        self.milestones, self.gamma = sorted(milestones), gamma

    def factor(self, epoch: int) -> float:
        """A power of gamma."""
        return float(self.gamma ** bisect_right(self.milestones, epoch))


class ExponentialLR(_FactorLR):
    """Times `gamma` every step."""

    def __init__(self, lr: BaseRates, gamma: float) -> None:
        super().__init__(lr)
        check("ExponentialLR", AT_LEAST_0, gamma=gamma)
        self.gamma = gamma

    def factor(self, epoch: int) -> float:
        """A power of gamma."""
        return float(self.gamma**epoch)


class PolynomialLR(_FactorLR):
    """(1 - epoch / total_iters) ** power, then 0."""

    def __init__(self, lr: BaseRates, total_iters: int = 5, power: float = 1.0) -> None:
        super().__init__(lr)
        check("PolynomialLR", COUNT, total_iters=total_iters)
        check("PolynomialLR", AT_LEAST_0, power=power)
        self.total_iters, self.power = total_iters, power

    def factor(self, epoch: int) -> float:
        """The value of the polynomial at this step."""
        return float((1 - min(epoch, self.total_iters) / self.total_iters) ** self.power)


class MultiplicativeLR(_FactorLR):
    """Times `lr_lambda(epoch)` at every step from the first."""

    def __init__(self, lr: BaseRates, lr_lambda: Factor) -> None:
        super().__init__(lr)
        _check_function("MultiplicativeLR", lr_lambda)
        self.lr_lambda = lr_lambda

    def factor(self, epoch: int) -> float:
        """The product so far."""
        return math.prod(self.lr_lambda(k) for k in range(1, epoch + 1))


class LambdaLR(LRScheduler):
    """Base rates times `lr_lambda(epoch)`: one function, or a list with one for each group."""

    def __init__(self, lr: BaseRates, lr_lambda: Factor | Sequence[Factor]) -> None:
        super().__init__(lr)
        groups = len(self.base_lrs)
        many: list[Any]
        many = list(lr_lambda) if isinstance(lr_lambda, list | tuple) else [lr_lambda] * groups
        for function in many:
            _check_function("LambdaLR", function)
        self.lr_lambdas = many
        if len(self.lr_lambdas) != groups:
            raise InputError(f"LambdaLR: {len(self.lr_lambdas)} functions for {groups} groups")

    def rates(self, epoch: int) -> list[float]:
        """The rates that the functions give."""
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [base * factor(epoch) for base, factor in pairs]
