"""LRScheduler: rates as a function of the number of steps."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from luminal.base.errors import InputError, LoadError
from luminal.optim.optimizer import Optimizer
from luminal.optim.ranges import AT_LEAST_0, AT_LEAST_0_INT, check
from luminal.optim.saved import check_entries

BaseRates: TypeAlias = "float | Sequence[float] | Optimizer"
"""The rate that a schedule changes, one for each parameter group, or the optimizer with them."""


def base_rates(what: str, lr: BaseRates) -> list[float]:
    """One number for each group; InputError for what is none."""
    if isinstance(lr, Optimizer):
        return lr.scheduled.take_rates(what)
    rates: list[Any] = list(lr) if isinstance(lr, list | tuple) else [lr]
    for rate in rates:
        if isinstance(rate, bool) or not isinstance(rate, int | float):
            raise InputError(
                f"{what}: {rate!r} is no learning rate; pass an optimizer, a number, or a list "
                "with one for each group"
            )
    if not rates:
        raise InputError(f"{what}: got no learning rate; pass a number")
    for rate in rates:
        check(what, AT_LEAST_0, lr=rate)
    return [float(rate) for rate in rates]


class Telling(ABCMeta):
    """Schedules tell an optimizer its rates as soon as they are made."""

    def __call__(cls, *args: Any, **settings: Any) -> Any:
        schedule = super().__call__(*args, **settings)
        schedule.tell()
        return schedule


class LRScheduler(metaclass=Telling):
    """Rates that follow from `base_lrs` and `last_epoch`, the number of calls of `step`.

    Made of an optimizer it starts from the rates that this has, and sets them: at once and with
    each `step`.
    """

    def __init__(self, lr: BaseRates) -> None:
        self.base_lrs = base_rates(type(self).__name__, lr)
        self.last_epoch = 0
        self.optimizer = lr if isinstance(lr, Optimizer) else None

    def tell(self) -> None:
        """Sets the rates of the optimizer that it was made of, and its momenta if it has any."""
        if self.optimizer is not None:
            self.optimizer.scheduled.set_rates(self.get_last_lr())
            momenta = self.momenta(self.last_epoch)
            if momenta is not None:
                self.optimizer.scheduled.set_momenta(momenta)

    @abstractmethod
    def rates(self, epoch: int) -> list[float]:
        """The rate of each group after `epoch` steps."""

    def momenta(self, epoch: int) -> list[float] | None:
        """The momentum of each group after `epoch` steps; None: it stays as it is."""
        return None

    def following(self, rates: Sequence[float], epoch: int) -> list[float]:
        """The rates at `epoch` where others than its own came before it (base rates before 0).

        What a ChainedScheduler asks for.
        """
        return self.rates(epoch)

    def step(self) -> None:
        """On to the next rates, which the optimizer takes if there is one."""
        self.last_epoch += 1
        self.tell()

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
        self.tell()


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
