"""One cycle: up to a high rate, down to a very low one. Smith & Topin 2018."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from luminal.base.errors import InputError
from luminal.optim.lr_scheduler.cosine import annealed
from luminal.optim.lr_scheduler.schedule import BaseRates, LRScheduler
from luminal.optim.optimizer import Optimizer
from luminal.optim.ranges import ABOVE_0, BETWEEN_0_AND_1, COUNT, SHARE, check, check_all


def _straight(start: float, end: float, done: float) -> float:
    return start + (end - start) * done


class OneCycleLR(LRScheduler):
    """From max_lr / div_factor up to `max_lr`, then down to the first by `final_div_factor`.

    The rise takes `pct_start` of `total_steps` (or epochs * steps_per_epoch); with `three_phase`
    the way back to the first takes as long, and what remains goes down. Before max_lr an optimizer
    may stand, as for torch's; its momentum (the first of its betas) goes the other way meanwhile,
    from max_momentum to base_momentum and back, unless `cycle_momentum` is False.
    """

    def __init__(
        self,
        optimizer: BaseRates | None = None,
        max_lr: BaseRates | None = None,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:
        if not (optimizer is None or isinstance(optimizer, Optimizer)):  # (max_lr, total_steps)
            total_steps = cast(int | None, max_lr) if total_steps is None else total_steps
            max_lr = optimizer
        if max_lr is None:
            raise InputError("OneCycleLR: got no max_lr; give the highest rate")
        super().__init__(max_lr)
        if isinstance(optimizer, Optimizer):
            self.optimizer, count = optimizer, len(optimizer.scheduled.take_rates("OneCycleLR"))
            self.base_lrs *= count if len(self.base_lrs) == 1 else 1
            if len(self.base_lrs) != count:
                raise InputError(
                    f"OneCycleLR: {len(self.base_lrs)} values of max_lr for {count} groups"
                )
        check("OneCycleLR", COUNT, epochs=epochs, steps_per_epoch=steps_per_epoch)
        steps = total_steps
        if steps is None and epochs is not None and steps_per_epoch is not None:
            steps = epochs * steps_per_epoch
        if steps is None:
            raise InputError(
                "OneCycleLR: got no total_steps; give it, or epochs and steps_per_epoch"
            )
        check("OneCycleLR", COUNT, total_steps=steps)
        check("OneCycleLR", SHARE, pct_start=pct_start)
        check("OneCycleLR", ABOVE_0, div_factor=div_factor, final_div_factor=final_div_factor)
        if anneal_strategy not in ("cos", "linear"):
            raise InputError(f'OneCycleLR: anneal_strategy={anneal_strategy!r}; "cos" or "linear"')
        self.total_steps = steps
        self.anneal = annealed if anneal_strategy == "cos" else _straight
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        self.cycle_momentum = cycle_momentum
        self.base_momenta = self._momenta("base_momentum", base_momentum)
        self.max_momenta = self._momenta("max_momentum", max_momentum)
        rise = pct_start * steps - 1
        self.ends = [rise, 2 * rise, steps - 1] if three_phase else [rise, steps - 1]
        if cycle_momentum and self.optimizer is not None:
            self.optimizer.scheduled.take_momentum("OneCycleLR")

    def _momenta(self, name: str, values: float | Sequence[float]) -> list[float]:
        """One for each group; InputError for what is none."""
        many: list[Any] = list(values) if isinstance(values, list | tuple) else [values]
        check_all("OneCycleLR", BETWEEN_0_AND_1, name, many)
        many = many * len(self.base_lrs) if len(many) == 1 else many
        if len(many) != len(self.base_lrs):
            raise InputError(
                f"OneCycleLR: {len(many)} values of {name} for {len(self.base_lrs)} groups"
            )
        return many

    def _at(self, epoch: int) -> tuple[int, float]:
        """The phase that this step lies in, and how much of it is done; InputError after all."""
        if epoch > self.total_steps:
            raise InputError(f"OneCycleLR: step {epoch} of {self.total_steps}; it is over")
        begin, phase = 0.0, 0
        while epoch > self.ends[phase] and phase < len(self.ends) - 1:
            begin, phase = self.ends[phase], phase + 1
        return phase, (epoch - begin) / ((self.ends[phase] - begin) or 1)

    def rates(self, epoch: int) -> list[float]:
        """In the phase that this step lies in; InputError after the last."""
        phase, done = self._at(epoch)
        rates = []
        for top in self.base_lrs:
            first = top / self.div_factor
            corners = [first, top, *([first] if len(self.ends) > 2 else [])]
            corners.append(first / self.final_div_factor)
            rates.append(self.anneal(corners[phase], corners[phase + 1], done))
        return rates

    def momenta(self, epoch: int) -> list[float] | None:
        """Down while the rates rise, up while they fall, then as they are; None: not cycled."""
        if not self.cycle_momentum:
            return None
        phase, done = self._at(epoch)
        momenta = []
        for least, most in zip(self.base_momenta, self.max_momenta, strict=True):
            corners = (most, least, most, most)
            momenta.append(self.anneal(corners[phase], corners[phase + 1], done))
        return momenta
