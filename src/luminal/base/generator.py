"""The default generator: `manual_seed` restarts it, and what is drawn and layers that are made
follow from it.

It is NumPy's PCG64, so bits differ from PyTorch's; a process starts with seed 0 and draws the same
in every run. What is drawn is data, fixed when it is drawn; numbers that are new in every run of a
graph come from keys (`luminal.frontend.random.keyed`).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from luminal.base.errors import InputError

Rng = np.random.Generator
Array = np.ndarray[Any, Any]


class _Generator:
    """A stream of random numbers, and numbered seeds that do not depend on what was drawn."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._numbers = itertools.count()
        self._stream = np.random.default_rng(seed)
        self._lock = threading.Lock()

    def take_seed(self) -> tuple[int, int]:
        # Numbered, not drawn: a layer's values do not change when a model draws data between its
        # layers.
        return self.seed, next(self._numbers)

    def draw(self, draw: Callable[[Rng], Array]) -> Array:
        with self._lock:
            return draw(self._stream)


_process = _Generator(0)
_rank: ContextVar[_Generator | None] = ContextVar("luminal_generator", default=None)


def _current() -> _Generator:
    return _rank.get() or _process


def begin_rank() -> None:
    """From now on this context has a generator of its own, with seed 0, as a process has.

    Ranks that are threads would else take turns at one stream, and each find other values.
    """
    _rank.set(_Generator(0))


def manual_seed(seed: int) -> None:
    """Sets the seed (0 at the start) that what is drawn and layers that are made follow from.

    Raises InputError for what is no int of 0 or above.
    """
    global _process
    generator = _Generator(checked_seed("manual_seed", seed))
    if _rank.get() is None:
        _process = generator
    else:
        _rank.set(generator)


def initial_seed() -> int:
    """The seed that was set last."""
    return _current().seed


def take_seed() -> tuple[int, int]:
    """The next numbered seed: the n-th Parameter made draws the same, whatever is drawn before."""
    return _current().take_seed()


def draw(function: Callable[[Rng], Array]) -> Array:
    """What `function` draws from the stream; calls come one after the other."""
    return _current().draw(function)


def checked_seed(what: str, seed: Any) -> int:
    """A seed as an int; raises InputError for anything but an int of 0 .. 2**64 - 1."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise InputError(f"{what}: seed={seed!r} is no int; give an int >= 0")
    if seed < 0:
        raise InputError(f"{what}: seed={seed} is negative; give an int >= 0")
    if seed >= 1 << 64:
        raise InputError(f"{what}: seed is an int of more than 64 bits; give one below 2**64")
    return int(seed)
