"""What a backend gives the runtime: a runner, which binds dims and then runs."""

from __future__ import annotations

import time
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

    def seconds(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int = 1) -> float:
        """`run`, `runs` times: how long they took together by the clock of what computes them.

        What a device's clock does not see (copies of inputs and outputs) is alike for all programs
        of a graph.
        """

    def profile(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int = 1) -> Times:
        """`run`, `runs` times, and the seconds of the launches in the order of the report's."""

    def report(self) -> Report:
        """The launches of one run."""


def on_host(
    bound: BoundRunner, inputs: Sequence[Array], outputs: Sequence[Array], runs: int
) -> float:
    """The seconds of a program whose runs end when their calls return."""
    start = time.perf_counter()
    for _ in range(runs):
        # One pair of clock readings around all runs: small programs take less time than two
        # readings do.
        bound.run(inputs, outputs)
    return time.perf_counter() - start


@runtime_checkable
class AddressedRunner(BoundRunner, Protocol):
    """A bound program that also runs on memory by address."""

    def run_at(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Runs once, with the addresses of the arrays."""


class Runner(Protocol):
    """A compiled program of one backend. Calls come one at a time."""

    def bind(
        self, dims: Mapping[str, int], inputs: Sequence[str], outputs: Sequence[str]
    ) -> BoundRunner:
        """The program for these dims, to be run with the named arrays in this order."""

    def peaks(self) -> Peaks | None:
        """What the machine reaches at most, measured at the first call; None where unknown."""

    def memory(self) -> WorkMemory:
        """The memory that the program holds now."""

    def abandon_run(self) -> None:
        """Forgets a run under way: this is a forked child, its thread is another process's."""
