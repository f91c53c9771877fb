"""What a row of a table draws: the same each time it is asked by the same seed, so that two
libraries get the same calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


class Draw:
    """Axes, flags, numbers, masks and positions of one call."""

    def __init__(self, *seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def one(self, choices: Sequence[T]) -> T:
        """One of several."""
        return choices[int(self._rng.integers(len(choices)))]

    def flag(self) -> bool:
        """True or False."""
        return bool(self._rng.integers(2))

    def axis(self, x: Any) -> int:
        """A dim of x, also counted from the end; IndexError where there is none."""
        if x.ndim == 0:
            raise IndexError
        return int(self._rng.integers(-x.ndim, x.ndim))

    def axes(self, x: Any) -> Any:
        """None, a dim, or some dims in any order."""
        if x.ndim == 0 or self._rng.random() < 0.3:
            return None
        if self._rng.random() < 0.6:
            return self.axis(x)
        return tuple(map(int, self._rng.permutation(x.ndim)[: self._rng.integers(1, x.ndim + 1)]))

    def order(self, x: Any) -> tuple[int, ...]:
        """All dims in some order."""
        return tuple(map(int, self._rng.permutation(x.ndim)))

    def mask(self, x: Any) -> Any:
        """Bools in the shape of x."""
        return self._rng.random(tuple(x.shape)) < 0.5

    def places(self, extent: int, *shape: int) -> Any:
        """Positions along a dim, the last few from the end."""
        return self._rng.integers(-extent, extent, shape)

    def numbers(self, *shape: int, dtype: Any = complex) -> Any:
        """Normal ones, or whole ones, of a dtype."""
        drawn = self._rng.standard_normal((2, *shape)) * 2
        drawn = np.round(drawn) if np.dtype(dtype).kind in "iub" or self.flag() else drawn
        return np.asarray(drawn[0] + (1j * drawn[1] if np.dtype(dtype).kind == "c" else 0), dtype)

    def beside(self, x: Any) -> tuple[int, ...]:
        """A shape that broadcasts with that of x."""
        shape = [1 if self._rng.random() < 0.3 else int(n) for n in x.shape]
        return tuple(shape[int(self._rng.integers(len(shape) + 1)) :])
