"""What a user may choose of a search: the mode of a compile and `SearchOptions`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from luminal.errors import CompileError


@dataclass(frozen=True, slots=True)
class CompilationMode:
    """How `compile` chooses: FAST (by rules, nothing is timed), OPTIMAL (search until the options'
    limits), or TimeBudget(seconds) (search for so long).
    """

    name: str
    seconds: float | None = None

    FAST: ClassVar[CompilationMode]
    OPTIMAL: ClassVar[CompilationMode]

    @staticmethod
    def TimeBudget(seconds: float) -> CompilationMode:
        """Search for about so many seconds. Raises CompileError for a number that is not > 0."""
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise CompileError(f"TimeBudget: takes seconds > 0, got {seconds!r}")
        return CompilationMode("budget", float(seconds))

    @property
    def searches(self) -> bool:
        """Whether candidates are timed."""
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
    raise CompileError(
        f"mode {mode!r}: takes 'fast', 'optimal' or lm.TimeBudget(seconds), as text '30s'"
    )


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
        positive = ("max_candidates", "build_seconds", "run_seconds")
        for name in positive:
            if not getattr(self, name) > 0:
                raise CompileError(f"SearchOptions: {name} must be > 0, got {getattr(self, name)}")
        if self.stop_below_us < 0:
            raise CompileError(f"SearchOptions: stop_below_us must be >= 0: {self.stop_below_us}")
        if self.workers is not None and self.workers < 1:
            raise CompileError(f"SearchOptions: workers must be >= 1, got {self.workers}")
