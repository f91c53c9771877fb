"""A schedule that follows a metric."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, SupportsFloat

from luminal.base.errors import InputError
from luminal.optim.lr_scheduler.schedule import BaseRates, Telling, base_rates, check_state
from luminal.optim.optimizer import Optimizer
from luminal.optim.ranges import AT_LEAST_0, AT_LEAST_0_INT, BELOW_1, check

_COUNTERS = ("last_epoch", "num_bad_epochs", "cooldown_counter")


class ReduceLROnPlateau(metaclass=Telling):
    """Rates times `factor` where a metric has not become better for more than `patience` steps.

    Better: below the best (`mode` "min") or above it ("max") by more than `threshold`, a share of
    the best ("rel") or a difference ("abs"). After that `cooldown` steps do not count. A rate does
    not fall below `min_lr`, and stays where it would change by no more than `eps`.
    """

    def __init__(
        self,
        lr: BaseRates,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: BaseRates = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise InputError(
                f"ReduceLROnPlateau: mode={mode!r}, threshold_mode={threshold_mode!r}; "
                'use "min" or "max", "rel" or "abs"'
            )
        what = "ReduceLROnPlateau"
        check(what, BELOW_1, factor=factor)
        check(what, AT_LEAST_0_INT, patience=patience, cooldown=cooldown)
        check(what, AT_LEAST_0, threshold=threshold, eps=eps)
        self.rates = base_rates("ReduceLROnPlateau", lr)
        self.optimizer = lr if isinstance(lr, Optimizer) else None
        least = base_rates("ReduceLROnPlateau: min_lr", min_lr)
        self.min_lrs = least * len(self.rates) if len(least) == 1 else least
        if len(self.min_lrs) != len(self.rates):
            raise InputError(
                f"ReduceLROnPlateau: {len(least)} values of min_lr for {len(self.rates)} groups"
            )
        self.mode, self.factor, self.patience, self.eps = mode, factor, patience, eps
        self.threshold, self.threshold_mode, self.cooldown = threshold, threshold_mode, cooldown
        self.best = math.inf if mode == "min" else -math.inf
        self.last_epoch = self.num_bad_epochs = self.cooldown_counter = 0

    def step(self, metrics: SupportsFloat) -> None:
        """Takes note of the metric of one more epoch."""
        current = float(metrics)
        self.last_epoch += 1
        if self._is_better(current):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            pairs = zip(self.rates, self.min_lrs, strict=True)
            lower = [max(rate * self.factor, least) for rate, least in pairs]
            self.rates = [
                new if old - new > self.eps else old
                for old, new in zip(self.rates, lower, strict=True)
            ]
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self.tell()

    def tell(self) -> None:
        """Sets the rates of the optimizer that it was made of."""
        if self.optimizer is not None:
            self.optimizer.scheduled.set_rates(self.rates)

    def _is_better(self, current: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            return sign * current > sign * self.best * (1 + sign * self.threshold)
        return sign * current > sign * self.best + self.threshold

    def get_last_lr(self) -> list[float]:
        """The rate of each group now."""
        return list(self.rates)

    @property
    def lr(self) -> float:
        """The rate now, of one group; InputError where there are several."""
        if len(self.rates) > 1:
            raise InputError(
                f"ReduceLROnPlateau.lr: there are {len(self.rates)} groups; use get_last_lr()"
            )
        return self.rates[0]

    def state_dict(self) -> dict[str, Any]:
        """Rates, the best metric and the counters; settings are those that it was made with."""
        counters = {name: getattr(self, name) for name in _COUNTERS}
        return {"last_lr": list(self.rates), "best": self.best, **counters}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on from there; LoadError, and no change, for a schedule of other groups."""
        check_state(
            "ReduceLROnPlateau", state_dict, (*_COUNTERS, "best", "last_lr"), len(self.rates)
        )
        for name in _COUNTERS:
            setattr(self, name, state_dict[name])
        self.rates, self.best = list(state_dict["last_lr"]), float(state_dict["best"])
        self.tell()
