"""Values that PyTorch refuses where the library has a meaning for them: noted, and raised for.

A refusal is a bool that a run computes beside its results; if it is true, the call raises before
it writes to any argument but those that a program updates where they lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import luminal as lm

Tensor = lm.Tensor
Refusal = tuple[Tensor, Exception]

_noted: ContextVar[list[Refusal]] = ContextVar("luminal_torch_refusals")


@contextmanager
def noted() -> Iterator[list[Refusal]]:
    """Inside, what operators refuse is listed."""
    found: list[Refusal] = []
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def refuse_where(condition: Tensor, error: Exception) -> None:
    """A run in which `condition` is true anywhere raises `error`."""
    _noted.get().append((condition.any(), error))
