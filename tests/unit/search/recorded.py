"""Every schedule of some kernels with what a clock said of it, and searches that replay it.

`python -m tests.unit.search.recorded` prints the table of docs/measurements.md.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from luminal.backends.backend import Prediction
from luminal.search.database import Sample
from luminal.search.learned import Learned, correlation
from luminal.search.order import Order

FOLDER = Path(__file__).parent
DEVICES = ("cpu", "opencl")
KEPT = 40  # schedules that a search has timed of every other kernel: the first of its space
AT_ONCE = 12  # that are timed before anything is fitted again
COUNTS = (5, 10, 20, 40, 60)
ORDERS = ("learned", "predicted", "rules", "random")
Kernels = Mapping[str, Sequence[Sample]]


@cache
def recorded(device: str) -> Kernels:
    """The schedules of each kernel, in the order of its space."""
    kernels = json.loads((FOLDER / f"recorded_on_{device}.json").read_text())["kernels"]
    return {name: samples_of(name, columns) for name, columns in kernels.items()}


def samples_of(name: str, columns: Mapping[str, float | Sequence[float]]) -> list[Sample]:
    """A column that is one number is the same for all schedules."""
    count = len(columns["us"])  # type: ignore[arg-type]
    rows = {key: np.broadcast_to(values, count).tolist() for key, values in columns.items()}
    seconds, predicted = rows.pop("us"), rows.pop("predicted us")
    return [
        Sample(name, seconds[k] * 1e-6, predicted[k] * 1e-6, {key: v[k] for key, v in rows.items()})
        for k in range(count)
    ]


def predictions(samples: Sequence[Sample]) -> list[Prediction]:
    return [Prediction(sample.predicted, sample.features) for sample in samples]


def others(kernels: Kernels, name: str) -> list[Sample]:
    """What searches of all other kernels leave in the database."""
    return [s for other, rows in kernels.items() if other != name for s in rows[:KEPT]]


def search(kernels: Kernels, name: str, how: str, seed: int = 0) -> list[float]:
    """The seconds of a kernel's schedules in the order in which a search times them."""
    rows, learned = kernels[name], Learned(others(kernels, name) if how == "learned" else ())
    if how == "rules":
        return [row.seconds for row in rows]
    if how == "random":
        return [row.seconds for row in random.Random(seed).sample(rows, len(rows))]
    order, timed = Order(len(rows)), []
    while len(timed) < min(len(rows), COUNTS[-1]):
        expected = learned.all_expected(predictions(rows), name)
        batch = [rows[order.next(expected)] for _ in range(min(AT_ONCE, len(rows) - len(timed)))]
        timed += [row.seconds for row in batch]
        if how == "learned":
            learned.add(batch)
    return timed


def gaps(kernels: Kernels, name: str, how: str, seed: int = 0) -> list[float]:
    """The best found over the best of all, after each of COUNTS."""
    timed, best = search(kernels, name, how, seed), min(row.seconds for row in kernels[name])
    return [min(timed[:count]) / best for count in COUNTS]


def correlations(kernels: Kernels, name: str, train: Sequence[Sample]) -> tuple[float, float]:
    """With the clock: of what is predicted, and of what is expected by what was learned."""
    rows = kernels[name]
    clock = [row.seconds for row in rows]
    expected = Learned(train).all_expected(predictions(rows), name)
    return correlation([row.predicted for row in rows], clock), correlation(expected, clock)


def main() -> None:
    for device in DEVICES:
        kernels = recorded(device)
        print(f"{device}: schedules; correlation predicted, learned; found / best after {COUNTS}")
        for name, rows in kernels.items():
            predicted, learned = correlations(kernels, name, others(kernels, name))
            cells = []
            for how in ORDERS:
                seeds = range(9 if how == "random" else 1)
                found = np.mean([gaps(kernels, name, how, seed) for seed in seeds], axis=0)
                cells.append(" ".join(f"{gap:.2f}" for gap in found))
            print(f"| {name} | {len(rows)} | {predicted:.2f} | {learned:.2f} |", " | ".join(cells))


if __name__ == "__main__":
    main()
