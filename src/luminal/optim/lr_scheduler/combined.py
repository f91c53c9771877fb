"""Schedules made of schedules: one after the other, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from luminal.base.errors import InputError
from luminal.optim.lr_scheduler.schedule import LRScheduler
from luminal.optim.optimizer import Optimizer
from luminal.optim.ranges import AT_LEAST_0_INT, check_all


def _groups(what: str, schedulers: Sequence[LRScheduler]) -> list[float]:
    """The base rates of the first; InputError where another has another number of them."""
    if not schedulers:
        raise InputError(f"{what}: got no schedulers")
    for scheduler in schedulers:
        if not isinstance(scheduler, LRScheduler):
            raise InputError(
                f"{what}: {scheduler!r} is no LRScheduler; ReduceLROnPlateau stands alone"
            )
    counts = [len(scheduler.base_lrs) for scheduler in schedulers]
    if len(set(counts)) > 1:
        raise InputError(f"{what}: the schedulers have {counts} groups; give all the same number")
    return schedulers[0].base_lrs


def _optimizer_of(optimizer: Any, schedulers: Sequence[LRScheduler]) -> Optimizer | None:
    """The optimizer that takes the rates: the one that is given, or that of the schedulers."""
    return optimizer if isinstance(optimizer, Optimizer) else schedulers[0].optimizer


class SequentialLR(LRScheduler):
    """The next scheduler begins at each of the milestones.

    Before the schedulers an optimizer may stand, which takes the rates, as for torch's; without one
    it is that of the schedulers.
    """

    def __init__(
        self,
        optimizer: Optimizer | Sequence[LRScheduler],
        schedulers: Any = None,
        milestones: Any = None,
    ) -> None:
        if not isinstance(optimizer, Optimizer):  # (schedulers, milestones)
            milestones = schedulers if milestones is None else milestones
            schedulers = optimizer
        super().__init__(_groups("SequentialLR", schedulers))
        self.optimizer = _optimizer_of(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise InputError(
                f"SequentialLR: {len(milestones)} milestones for {len(schedulers)} schedulers; "
                "give one less"
            )
        check_all("SequentialLR", AT_LEAST_0_INT, "milestones", milestones)
        if sorted(milestones) != list(milestones):
            raise InputError(f"SequentialLR: milestones={milestones!r}; they must ascend")
        self.schedulers: list[LRScheduler] = list(schedulers)
        self.milestones: list[int] = list(milestones)

    def rates(self, epoch: int) -> list[float]:
        """The rates of the scheduler whose turn it is."""
        scheduler, steps = self._at(epoch)
        return scheduler.rates(steps)

    def momenta(self, epoch: int) -> list[float] | None:
        """The momenta of the scheduler whose turn it is, if it has any."""
        scheduler, steps = self._at(epoch)
        return scheduler.momenta(steps)

    def _at(self, epoch: int) -> tuple[LRScheduler, int]:
        """The scheduler whose turn it is, and how many steps it has made."""
        k = bisect_right(self.milestones, epoch)
        return self.schedulers[k], epoch - self.milestones[k - 1] if k else epoch


class ChainedScheduler(LRScheduler):
    """Every scheduler changes what those before it left: factors multiply.

    The optimizer, which takes the rates, is that of the schedulers if none is given.
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        super().__init__(_groups("ChainedScheduler", schedulers))
        self.optimizer = _optimizer_of(optimizer, schedulers)
        others = [
            scheduler.base_lrs for scheduler in schedulers if scheduler.base_lrs != self.base_lrs
        ]
        if others:
            raise InputError(
                f"ChainedScheduler: the schedulers begin at the rates {self.base_lrs} and "
                f"{others[0]}; make all with the same"
            )
        self.schedulers = list(schedulers)
        self._known = [self._after(self.base_lrs, 0)]

    def _after(self, rates: list[float], epoch: int) -> list[float]:
        for scheduler in self.schedulers:
            rates = scheduler.following(rates, epoch)
        return rates

    def rates(self, epoch: int) -> list[float]:
        """All of them in turn, step by step from the first."""
        for k in range(len(self._known), epoch + 1):
            self._known.append(self._after(self._known[-1], k))
        return self._known[epoch]

    def momenta(self, epoch: int) -> list[float] | None:
        """The momenta of the last scheduler that has any."""
        for scheduler in reversed(self.schedulers):
            momenta = scheduler.momenta(epoch)
            if momenta is not None:
                return momenta
        return None
