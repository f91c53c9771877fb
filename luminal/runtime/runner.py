"""What a backend gives the runtime: a runner, which binds dims and then runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from luminal.runtime.arrays import Array
from luminal.runtime.report import Report, WorkMemory


class BoundRunner(Protocol):
    """A program with the values of its dims: one run needs only arrays."""

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Computes the outputs and updates the States.

        All arrays are row-major; `outputs` are written to and share no memory with anything else.
        The caller holds the States' locks. Raises only before anything is written to a State.
        """

    def report(self) -> Report:
        """The launches of one run."""


class Runner(Protocol):
    """A compiled program. Calls come one at a time."""

    def bind(
        self, dims: Mapping[str, int], inputs: Sequence[str], outputs: Sequence[str]
    ) -> BoundRunner:
        """The program for these dims, to be run with the named arrays in this order."""

    def memory(self) -> WorkMemory:
        """What is held now."""
