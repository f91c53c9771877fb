"""LRScheduler: rates as a function of the number of steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from luminal.base.errors import InputError, LoadError
from luminal.optim.ranges import AT_LEAST_0, AT_LEAST_0_INT, check
from luminal.optim.saved import check_entries

BaseRates: TypeAlias = float | Sequence[float]
"""The rate that a schedule changes, or one for each parameter group."""


def base_rates(what: str, lr: BaseRates) -> list[float]:
    """One number for each group; InputError for what is none."""
    rates: list[Any] = list(lr) if isinstance(lr, list | tuple) else [lr]
    for rate in rates:
        if isinstance(rate, bool) or not isinstance(rate, int | float):
            raise InputError(
                f"{what}: {rate!r} is no learning rate; pass a number, or a list with one for each "
                "group, give the optimizer lr=cx.tensor((), name='lr'), and each step scheduler.lr"
            )
    if not rates:
        raise InputError(f"{what}: got no learning rate; pass a number")
    for rate in rates:
        check(what, AT_LEAST_0, lr=rate)
    return [float(rate) for rate in rates]


class LRScheduler(ABC):
    """Rates that follow from `base_lrs` and `last_epoch`, the number of calls of `step`."""

    def __init__(self, lr: BaseRates) -> None:
        self.base_lrs = base_rates(type(self).__name__, lr)
        self.last_epoch = 0

    @abstractmethod
    def rates(self, epoch: int) -> list[float]:
        """The rate of each group after `epoch` steps."""

    def following(self, rates: Sequence[float], epoch: int) -> list[float]:
        """The rates at `epoch` where others than its own came before it (base rates before 0).

        What a ChainedScheduler asks for.
        """
        return self.rates(epoch)

    def step(self) -> None:
        """On to the next rates."""
        self.last_epoch += 1

    def get_last_lr(self) -> list[float]:
        """The rate of each group now."""
        return self.rates(self.last_epoch)

    @property
    def lr(self) -> float:
        """The rate now, of one group; InputError where there are several."""
        rates = self.get_last_lr()
        if len(rates) > 1:
            raise InputError(
                f"{type(self).__name__}.lr: there are {len(rates)} groups; use get_last_lr()"
            )
        return rates[0]

    def state_dict(self) -> dict[str, Any]:
        """Where the schedule is; settings are those that it was made with."""
        return {"last_epoch": self.last_epoch, "last_lr": self.get_last_lr()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on from there; LoadError, and no change, for a schedule of other groups."""
        what = type(self).__name__
        check_state(what, state_dict, ("last_epoch", "last_lr"), len(self.base_lrs))
        epoch = state_dict["last_epoch"]
        try:
            self.rates(epoch)
        except InputError as error:
            raise LoadError(f"{error}; pass the state_dict of a scheduler like this one") from None
        self.last_epoch = epoch


def check_state(what: str, state_dict: Any, names: Sequence[str], count: int) -> None:
    """Raises LoadError unless the state_dict has numbers by these names, and so many rates."""
    check_entries(what, state_dict, names)
    for name in names:
        value = state_dict[name]
        try:
            if name == "last_lr":
                base_rates(what, value)
            elif name == "best":
                float(value)
            else:
                check(what, AT_LEAST_0_INT, **{name: value})
        except (InputError, TypeError, ValueError):
            raise LoadError(
                f"{what}: the state_dict has {name}={value!r}; pass that of a scheduler"
            ) from None
    groups = len(base_rates(what, state_dict["last_lr"]))
    if groups != count:
        raise LoadError(f"{what}: the state_dict is of {groups} groups, the scheduler of {count}")
