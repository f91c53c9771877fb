"""The losses of a run as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from luminal.base import installation
from luminal.base.errors import InputError
from luminal.loaders.mapped import given_path
from luminal.training.metrics import Row

SMOOTHED = 50  # points that the smooth line has the length of a mean of the whole run's share


def figure_class() -> Any:
    """matplotlib's Figure; raises InputError where that is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(
            f"plot: matplotlib is not installed; {installation.hint('plot')}, or leave plot=None"
        ) from None
    return Figure


def plot_losses(rows: Sequence[Row], path: str | Path) -> None:
    """Draws training and validation loss over steps into a PNG.

    Needs matplotlib: InputError without it, or where the file cannot be written.
    """
    figure = figure_class()(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    losses = [(row["step"], row["loss"]) for row in rows if row.get("loss") is not None]
    axes.plot(*zip(*losses, strict=True), linewidth=0.6, alpha=0.4, label="training")
    axes.plot(*zip(*_smoothed(losses), strict=True), label="training, smoothed")
    held = [(row["step"], row["validation_loss"]) for row in rows if row.get("validation_loss")]
    if held:
        axes.plot(*zip(*held, strict=True), marker="o", label="validation")
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.legend()
    place = given_path(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(place, format="png", dpi=120)
    except OSError as error:
        raise InputError(f"{place}: cannot be written: {error.strerror}") from error


def _smoothed(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """An exponential mean over about a 50th of the points."""
    keep = 1 - min(1.0, SMOOTHED / max(1, len(points)))
    mean = points[0][1]
    smoothed = []
    for step, loss in points:
        mean = keep * mean + (1 - keep) * loss
        smoothed.append((step, mean))
    return smoothed
