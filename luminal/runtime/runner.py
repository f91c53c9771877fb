"""What a backend gives the runtime: a runner, which binds dims and then runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from luminal.runtime.arrays import Array
from luminal.runtime.report import Report, WorkMemory
from luminal.runtime.roofline import Peaks

Times: TypeAlias = NDArray[np.floating[Any]]
"""Seconds of every launch site (second axis) in every run (first axis)."""


class BoundRunner(Protocol):
    """A program with the values of its dims: one run needs only arrays."""

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Computes the outputs and updates the States.

        All arrays are row-major; `outputs` are written to and share no memory with anything else.
        The caller holds the States' locks. If it raises, no State has changed.
        """

    def profile(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int = 1) -> Times:
        """`run`, `runs` times, and the seconds of the launches in the order of the report's."""

    def report(self) -> Report:
        """The launches of one run."""


@runtime_checkable
class AddressedRunner(BoundRunner, Protocol):
    """A bound program that also runs on memory by address."""

    def run_at(self, inputs: Sequence[int], outputs: Sequence[int], sizes: Sequence[int]) -> None:
        """As `run`, with the addresses of the arrays, and the outputs' bytes."""


class Runner(Protocol):
    """A compiled program. Calls come one at a time."""

    def bind(
        self, dims: Mapping[str, int], inputs: Sequence[str], outputs: Sequence[str]
    ) -> BoundRunner:
        """The program for these dims, to be run with the named arrays in this order."""

    def peaks(self) -> Peaks | None:
        """What the machine reaches at most, measured at the first call; None where unknown."""

    def memory(self) -> WorkMemory:
        """What is held now."""

    def abandon_run(self) -> None:
        """Forgets a run under way: this is a forked child, its thread is another process's."""
