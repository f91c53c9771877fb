"""What `fit` tells of a run while it goes, and what may end it early."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luminal.base.errors import InputError
from luminal.optim.ranges import AT_LEAST_0, COUNT, check
from luminal.training.metrics import Row

if TYPE_CHECKING:
    from luminal.training.trainer import Trainer


class Callback:
    """What `fit` calls at each event of a run; a subclass has the methods that it needs.

    `run` is the Trainer: `run.recipe` has model and optimizer, `run.record` how it goes,
    `run.stop("why")` ends it after this step, with a checkpoint. Rows may get more entries, which
    are logged. On a mesh all ranks call theirs alike; `run.recipe.ranks.is_first` is true on one.
    """

    def on_begin(self, run: Trainer) -> None:
        """The steps are about to begin, or to go on after `run.record.resumed`."""

    def on_step(self, run: Trainer, row: Row) -> None:
        """A step was taken; its metrics, those of a validation after it included."""

    def on_epoch(self, run: Trainer, row: Row) -> None:
        """An epoch has ended with this step."""

    def on_checkpoint(self, run: Trainer, path: Path) -> None:
        """A checkpoint was written; the path of its JSON."""

    def on_end(self, run: Trainer) -> None:
        """The run is over, by an error too."""

    def state_dict(self) -> dict[str, Any]:
        """What a run that goes on needs of it: dicts, lists, arrays, numbers, texts."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes what `state_dict` gave."""


class EarlyStopping(Callback):
    """Ends a run once `patience` values of a metric, one after the other, are not better than the
    best by more than `min_delta`.

    `metric`: a name in rows. Those without it do not count, so that of a validation is looked at
    where there was one. `mode`: "min" or "max", what is better. A NaN ends the run at once. With
    `restore_best` the model has the Parameters and running statistics of its best value afterwards.
    `best` and `best_step` say which.
    """

    def __init__(
        self, metric: str = "validation_loss", patience: int = 3, min_delta: float = 0.0,
        mode: str = "min", restore_best: bool = False,
    ) -> None:  # fmt: skip
        check("EarlyStopping", COUNT, patience=patience)
        check("EarlyStopping", AT_LEAST_0, min_delta=min_delta)
        if mode not in ("min", "max"):
            raise InputError(f'EarlyStopping: mode={mode!r}; takes "min" or "max"')
        self.metric, self.patience, self.min_delta = metric, patience, min_delta
        self.mode, self.restore_best = mode, restore_best
        self.best: float | None = None
        self.best_step, self._worse = 0, 0
        self._kept: dict[str, Any] = {}
        self._seen = False

    def on_begin(self, run: Trainer) -> None:
        """Ends a run that goes on from its end."""
        self._look(run)

    def on_step(self, run: Trainer, row: Row) -> None:
        """Looks at the metric, where the row has it."""
        if (value := row.get(self.metric)) is None:
            return
        self._seen = True
        sign = 1 if self.mode == "min" else -1
        if self.best is None or sign * (self.best - value) > self.min_delta:
            self.best, self.best_step, self._worse = value, row["step"], 0
            if self.restore_best:
                self._kept = run.model_state()
        else:
            self._worse += 1
        if math.isnan(value):
            run.stop(f"{self.metric} is NaN")
        self._look(run)

    def _look(self, run: Trainer) -> None:
        if self._worse >= self.patience:
            run.stop(f"{self.metric} was best at step {self.best_step}: {self.best:.4g}")

    def on_end(self, run: Trainer) -> None:
        """Brings back what was best, if asked; warns where no row had the metric."""
        if not self._seen and run.record.history:
            names = ", ".join(run.record.history[-1])
            warnings.warn(
                f"EarlyStopping: no row had the metric {self.metric!r}; they have {names}; name "
                "one of them, or give validate=",
                stacklevel=2,
            )
        if self._kept:
            run.load_model_state(self._kept)

    def state_dict(self) -> dict[str, Any]:
        """The best value, its step, how many were worse since, and what is kept of it."""
        return {"best": self.best, "best_step": self.best_step, "worse": self._worse,
                "kept": self._kept}  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes what `state_dict` gave."""
        self.best, self.best_step = state["best"], state["best_step"]
        self._worse, self._kept = state["worse"], dict(state["kept"])
        self._seen = self.best is not None


class _OnStep(Callback):
    """A function that is called after each step."""

    def __init__(self, function: Callable[[Any, Row], Any]) -> None:
        self._function = function

    def on_step(self, run: Trainer, row: Row) -> None:
        self._function(run, row)


def as_callbacks(asked: Any) -> list[Callback]:
    """One or several callbacks, of which functions are called after each step; InputError for what
    is neither.
    """
    several = asked if isinstance(asked, Sequence) else [] if asked is None else [asked]
    callbacks = []
    for one in several:
        if not isinstance(one, Callback) and (isinstance(one, type) or not callable(one)):
            fix = f"call it: {one.__name__}()" if isinstance(one, type) else "see training.Callback"
            raise InputError(
                f"fit: callbacks has {one!r}, which is neither a Callback nor a function of the "
                f"run and a row; {fix}"
            )
        callbacks.append(one if isinstance(one, Callback) else _OnStep(one))
    return callbacks


def by_name(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    """Callbacks by their classes' names, with numbers where there are several."""
    named: dict[str, Callback] = {}
    for callback in callbacks:
        name, number = type(callback).__name__, 2
        while name in named:
            name, number = f"{type(callback).__name__} {number}", number + 1
        named[name] = callback
    return named
