"""Errors that Luminal raises on purpose.

Every message names the value, the rule it broke and the fix. Each class also derives from the
builtin a user would expect to catch, so `except ValueError` works as it does with NumPy.
"""

from __future__ import annotations

from typing import Any

from luminal.base.lines import Line, line_here


class LuminalError(Exception):
    """Base of every error Luminal raises on purpose; `line` is the user's, where it was raised."""

    line: Line | None = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.line = line_here()


class ShapeError(LuminalError, ValueError):
    """Shapes do not fit an operation or one another."""


class DTypeError(LuminalError, TypeError):
    """A dtype is not accepted where it stands."""


class DTypeBoundaryError(DTypeError):
    """A compiled module was called with a tensor of another dtype than it was compiled for."""


class DimError(LuminalError, ValueError):
    """A symbolic dimension is missing, outside its interval, or not decidable."""


class GraphError(LuminalError, ValueError):
    """A graph is put together or used wrongly: mixed graphs, duplicate names, cycles."""


class InputError(LuminalError, ValueError):
    """A value given from outside (a run's input, a flag, an option) breaks its rule."""


class CompileError(LuminalError, RuntimeError):
    """A program could not be compiled."""


class DeviceError(LuminalError, RuntimeError):
    """A device has failed at work it was given, or cannot be used where it is asked."""


class LoadError(LuminalError, ValueError):
    """A file of weights, a configuration or a tokenizer could not be read."""


class NonFiniteError(LuminalError, FloatingPointError):
    """Training met a NaN or an infinity where it was told to look for one."""


class VerifyError(LuminalError, AssertionError):
    """An IR broke its own invariants: a bug in Luminal, never in the user's model."""


class CollectiveError(LuminalError, RuntimeError):
    """Ranks of one program have lost one another: one has ended, or does another thing."""


class CollectiveTimeoutError(CollectiveError, TimeoutError):
    """A collective has waited past its deadline for ranks that have not come."""
