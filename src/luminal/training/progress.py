"""How far a run is: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from luminal.training.metrics import Row

LINES = 20  # of a run, where there is no terminal

SHOWN = {
    "loss": "loss {:.4f}",
    "validation_loss": "validation loss {:.4f}",
    "accuracy": "accuracy {:.2%}",
    "lr": "lr {:.3g}",
    "grad_norm": "norm {:.3g}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "samples_per_second": "{:,.0f} samples/s",
}


class Display(Protocol):
    """Shows rows of metrics as they come."""

    def show(self, row: Row) -> None:
        """A step is done."""

    def close(self) -> None:
        """The run is over."""


class Silence:
    """A display that shows nothing."""

    def show(self, row: Row) -> None:
        """Shows nothing of a row."""

    def close(self) -> None:
        """Has nothing to close."""


class Lines:
    """About twenty lines a run, and every row with a validation loss. Where no one knows how long a
    run is, ever fewer: after 1, 2, ... 9, 10, 20, ... 90, 100, 200 ... steps.
    """

    def __init__(self, console: Console, total: int | None) -> None:
        self._console, self._total = console, total

    def show(self, row: Row) -> None:
        """A line, where it is time for one."""
        step, total = row["step"], self._total
        is_due = step % max(1, total // LINES) == 0 if total else len(str(step).rstrip("0")) == 1
        if is_due or is_validated(row):
            line = f"step {step}{f'/{total}' * bool(total)}  {summary(row)}"
            self._console.print(line, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Has nothing to close."""


class Bar:
    """A bar with the metrics of the last step."""

    def __init__(self, console: Console, total: int | None, done: int) -> None:
        told = TextColumn("{task.description}")
        columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), told
        self._progress = Progress(*columns, console=console)
        self._task = self._progress.add_task("", total=total, completed=done)
        self._progress.start()

    def show(self, row: Row) -> None:
        """Moves the bar; what was validated stays above it."""
        self._progress.update(self._task, completed=row["step"], description=summary(row))
        if is_validated(row):
            self._progress.print(f"step {row['step']}  {summary(row)}")

    def close(self) -> None:
        """Leaves the bar as it is."""
        self._progress.stop()


def display(total: int | None, done: int, wanted: bool = True) -> Display:
    """A bar where the output is a terminal, else lines; nothing if it is not `wanted`. `total` is
    None where nobody knows it.
    """
    if not wanted:
        return Silence()
    console = Console()
    return Bar(console, total, done) if console.is_terminal else Lines(console, total)


def summary(row: Row) -> str:
    """The metrics of a row in words."""
    return "  ".join(
        text.format(row[name]) for name, text in SHOWN.items() if row.get(name) is not None
    )


def is_validated(row: Row) -> bool:
    """Has it what a validation found?"""
    return "validation_loss" in row or "accuracy" in row
