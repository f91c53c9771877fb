"""What a user may choose of a search: the mode of a compile and `SearchOptions`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import field
from numbers import Integral, Real
from typing import Any, ClassVar

from luminal.base.errors import CompileError
from luminal.base.number_kinds import is_number
from luminal.base.records import dataclass

MODES = "takes 'fast', 'optimal' or lm.TimeBudget(seconds), as text '30s'"


@dataclass(frozen=True, slots=True)
class CompilationMode:
    """How `compile` chooses: FAST (by rules, nothing is timed), OPTIMAL (search until the options'
    limits), or TimeBudget(seconds) (search for so long).
    """

    name: str
    seconds: float | None = None

    FAST: ClassVar[CompilationMode]
    OPTIMAL: ClassVar[CompilationMode]

    def __post_init__(self) -> None:
        timed = self.seconds is not None
        if self.name not in ("fast", "optimal", "budget") or timed != (self.name == "budget"):
            raise CompileError(f"mode {self.name!r}: {MODES}")

    @staticmethod
    def TimeBudget(seconds: float) -> CompilationMode:
        """Search for about so many seconds. Raises CompileError for a number that is not > 0."""
        if not is_number(seconds, Real) or not 0 < seconds < math.inf:
            raise CompileError(
                f"TimeBudget: takes seconds > 0, got {seconds!r}; mode='optimal' has no time limit"
            )
        return CompilationMode("budget", float(seconds))

    @property
    def is_search(self) -> bool:
        """Does a compile in this mode time candidates?"""
        return self.name != "fast"

    def shared_by(self, programs: int) -> CompilationMode:
        """The mode for each of some programs that share its time."""
        if self.seconds is None:
            return self
        return CompilationMode(self.name, self.seconds / programs)

    def __str__(self) -> str:
        return self.name if self.seconds is None else f"TimeBudget({self.seconds:g})"


CompilationMode.FAST = CompilationMode("fast")
CompilationMode.OPTIMAL = CompilationMode("optimal")
TimeBudget = CompilationMode.TimeBudget


def mode_of(mode: CompilationMode | str) -> CompilationMode:
    """The mode a user names: "fast", "optimal", seconds as "30s", or a CompilationMode.

    Raises CompileError for anything else.
    """
    match mode:
        case CompilationMode():
            return mode
        case "fast":
            return CompilationMode.FAST
        case "optimal":
            return CompilationMode.OPTIMAL
        case str() if re.fullmatch(r"\d+(\.\d+)?s", mode):
            return TimeBudget(float(mode[:-1]))
    raise CompileError(f"mode {mode!r}: {MODES}")


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The limits of a search.

    `max_candidates`: programs and kernels timed. `stop_below_us`: a program this fast is good
    enough (microseconds a run). `seed`: of everything drawn. `dims`: the values that dims are timed
    at, by name; others are timed near 256 or at their upper end. `progress`: a progress bar on
    stderr (None: if that is a terminal). `workers`: processes that compile (None: one a CPU).
    `build_seconds`, `run_seconds`: a kernel that takes longer to compile, or a program that takes
    longer to run once, is rejected.
    """

    max_candidates: int = 10_000
    stop_below_us: float = 50.0
    seed: int = 0
    dims: Mapping[str, int] = field(default_factory=dict)
    progress: bool | None = None
    workers: int | None = None
    build_seconds: float = 20.0
    run_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name, (kind, least, most) in _NUMBERS.items():
            value = getattr(self, name)
            if value is not None or name != "workers":
                _settle(self, name, _number(name, kind, least, most, value))
        if self.progress not in (None, True, False):
            raise CompileError(
                f"SearchOptions: progress takes True, False or None, got {self.progress!r}"
            )
        if not isinstance(self.dims, Mapping):
            raise CompileError(
                f'SearchOptions: dims takes a dict, as {{"s": 128}}, got {self.dims!r}'
            )
        dims = {}
        for key, value in self.dims.items():
            name = getattr(key, "name", key)  # of a dim itself
            dims[name] = _number(f"dims: {name}", int, 0, None, value)
        _settle(self, "dims", dims)


_NUMBERS: dict[str, tuple[type, float, float | None]] = {  # kind, least, most
    "max_candidates": (int, 1, None),
    "stop_below_us": (float, 0, None),
    "seed": (int, 0, None),
    "workers": (int, 1, 1024),
    "build_seconds": (float, 0.01, 86_400),
    "run_seconds": (float, 0.01, 3_600),
}


def _number(name: str, kind: type, least: float, most: float | None, value: Any) -> int | float:
    """The value as an int or float, so that equal options have equal texts."""
    is_of_kind = is_number(value, Integral if kind is int else Real)
    if not is_of_kind or not least <= value <= (math.inf if most is None else most):
        what = "an integer" if kind is int else "a number"
        limits = f">= {least}" if most is None else f"from {least} to {most}"
        raise CompileError(f"SearchOptions: {name} takes {what} {limits}, got {value!r}")
    number: int | float = kind(value)
    return number


def _settle(options: SearchOptions, name: str, value: Any) -> None:
    object.__setattr__(options, name, value)  # frozen for others; this is still its making
