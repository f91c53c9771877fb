"""How far predictions are off, learned from what was timed: a ridge regression over kernels.

What is learned is the logarithm of the seconds that a clock gave over those that were predicted.
It is taken for a smooth function of the logarithms of what was counted (`Prediction.features`),
one part of which all kernels share and one of which is a kernel's own, with a constant of its own.
Where nothing near was timed it is 0, and the prediction stays as it is. That is kernel ridge
regression, which is the mean of a Gaussian process: Rasmussen, Williams: Gaussian Processes for
Machine Learning (2006), chapter 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.backends.backend import Prediction
from luminal.search.database import MOST_SECONDS, Sample

Matrix = NDArray[Any]

MOST_ROWS = 1000  # that are fitted, the latest: a fit takes some 50 ms
NOISE = 1.0  # of a clock's logarithm, as a share of what is learned
REACH = 0.7  # how far apart two kernels may be to be alike, in deviations of each feature
OWN = 1.0  # of a kernel's own part, beside that of all


class Learned:
    """What was timed on one chip, fitted when it is asked and something is new."""

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self.samples: list[Sample] = []
        self.add(samples)

    def add(self, samples: Iterable[Sample]) -> None:
        """Adds what was timed, but for what cannot be: one such sample would spoil all."""
        self.samples += (sample for sample in samples if sample.is_possible)
        self._fit: _Fit | None = None

    def expected(self, prediction: Prediction, kernel: str = "") -> float:
        """The seconds of one launch, predicted and corrected; of a kernel of this name."""
        return self.all_expected([prediction], kernel)[0]

    def all_expected(self, predictions: Sequence[Prediction], kernel: str = "") -> list[float]:
        """The seconds of some launches, schedules of one kernel."""
        seconds = [prediction.seconds for prediction in predictions]
        if not self.samples or not predictions:
            return seconds
        self._fit = self._fit or _Fit(self.samples[-MOST_ROWS:])
        factors = self._fit.factors(predictions, kernel)
        expected: list[float] = np.multiply(seconds, factors).tolist()
        return expected


class _Fit:
    """The weights of some samples."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        counts = [_with_seconds(sample.features, sample.predicted) for sample in samples]
        self.names = sorted({name for features in counts for name in features})
        rows = self._rows(counts)
        self.middle, spread = rows.mean(0), rows.std(0)
        self.scale = 1 / np.where(spread > 1e-6, spread * np.sqrt(len(self.names)) * REACH, np.inf)
        self.rows = (rows - self.middle) * self.scale
        self.kernels = np.array([sample.kernel for sample in samples])
        ratios = np.log([sample.seconds / sample.predicted for sample in samples])
        alike = self._alike(self.rows, self.kernels)
        alike[np.diag_indices_from(alike)] += NOISE
        self.mean = float(ratios.mean())
        self.weights = np.linalg.solve(alike, ratios - self.mean)

    def factors(self, predictions: Sequence[Prediction], kernel: str) -> Matrix:
        """How many times the predicted seconds some launches should take."""
        counts = [_with_seconds(launch.features, launch.seconds) for launch in predictions]
        rows = (self._rows(counts) - self.middle) * self.scale
        kernels = np.array([kernel] * len(rows))
        factors: Matrix = np.exp(self.mean + self._alike(rows, kernels) @ self.weights)
        return factors

    def _rows(self, counts: Sequence[Mapping[str, float]]) -> Matrix:
        """A row of logarithms for each; what was not counted is none."""
        logarithms: Matrix = np.log2(
            [[1 + max(0.0, row.get(name, 0.0)) for name in self.names] for row in counts]
        )
        return logarithms

    def _alike(self, rows: Matrix, kernels: Matrix) -> Matrix:
        """How much some rows say of the samples: columns."""
        squares = (rows**2).sum(1)[:, None] + (self.rows**2).sum(1) - 2 * rows @ self.rows.T
        near: Matrix = np.exp(-np.maximum(squares, 0) / 2)
        same = kernels[:, None] == self.kernels
        alike: Matrix = near * (1 + OWN * same) + same
        return alike


def _with_seconds(features: Mapping[str, float], predicted: float) -> dict[str, float]:
    """The features and what was predicted, in nanoseconds: quotients of both tell more."""
    return {**features, "predicted": min(predicted, MOST_SECONDS) * 1e9}


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's correlation of two lists, which is that of their ranks: 1 where one orders as the
    other does, 0 where it knows nothing, or all are equal.
    """
    ranks = _ranks(first), _ranks(second)
    if min(ranked.std() for ranked in ranks) == 0:
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: Sequence[float]) -> Matrix:
    """Equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Matrix = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return ranks
