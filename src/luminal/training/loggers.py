"""Callbacks that write metrics for other programs to show: TensorBoard, Weights & Biases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luminal.base import installation
from luminal.base.errors import InputError
from luminal.training.callbacks import Callback
from luminal.training.event_file import EventFile
from luminal.training.metrics import Row

if TYPE_CHECKING:
    from luminal.training.trainer import Trainer


class TensorBoard(Callback):
    """Writes every number of each row into a file of events in `folder`: `tensorboard --logdir`
    shows it. Needs no package.

    A run that goes on from a checkpoint writes a file of its own beside the first, by whose steps
    TensorBoard joins them.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = folder
        self._file: EventFile | None = None

    def on_begin(self, run: Trainer) -> None:
        """Opens the file, on the first rank."""
        if run.recipe.ranks.is_first:
            self._file = EventFile(self.folder)

    def on_step(self, run: Trainer, row: Row) -> None:
        """Adds the numbers of a row."""
        if self._file is not None:
            self._file.add(row["step"], dict(numbers_of(row)))

    def on_end(self, run: Trainer) -> None:
        """Closes the file of events."""
        if self._file is not None:
            self._file.close()


class WandB(Callback):
    """Logs every number of each row to Weights & Biases (the package `wandb`, extra `wandb`).

    `options` are those of `wandb.init`: project, name, config, mode="offline", id with resume.
    A run that is not begun here but is there already (`wandb.run`) is used, and stays open.
    """

    def __init__(self, **options: Any) -> None:
        try:
            import wandb
        except ImportError:
            raise InputError(
                f"WandB: wandb is not installed; {installation.hint('wandb')}, or log with "
                "TensorBoard(folder)"
            ) from None
        self._wandb, self._options = wandb, options
        self._run: Any = None
        self._is_ours = False

    def on_begin(self, run: Trainer) -> None:
        """Begins a run there, on the first rank, unless there is one."""
        if not run.recipe.ranks.is_first:
            return
        self._is_ours = self._wandb.run is None
        self._run = self._wandb.init(**self._options) if self._is_ours else self._wandb.run

    def on_step(self, run: Trainer, row: Row) -> None:
        """Logs the numbers of a row under its step."""
        if self._run is not None:
            self._run.log(dict(numbers_of(row)), step=row["step"])

    def on_end(self, run: Trainer) -> None:
        """Ends the run that was begun here."""
        if self._run is not None and self._is_ours:
            self._run.finish()


def numbers_of(row: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a row by its name but the step, those in dicts by names with slashes."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from numbers_of(value, f"{path}{name}/")
        elif isinstance(value, int | float) and path + name != "step":
            yield path + name, value
