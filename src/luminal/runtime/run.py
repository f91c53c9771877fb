"""A run that was started, and may not be over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from luminal.runtime.arrays import Array
from luminal.runtime.results import Results
from luminal.runtime.runner import BoundRunner


class Starting(BoundRunner, Protocol):
    """A bound program whose device computes by itself, while the host goes on."""

    def start(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], None]:
        """Queues a run with inputs and States as they are now.

        What it returns waits until the outputs are there, and raises what went wrong with the run.
        """


class Run:
    """What `Executable.start` gives. Runs of one device end in the order in which they started."""

    __slots__ = ("_results", "_wait")

    def __init__(self, results: Results, wait: Callable[[], None] | None) -> None:
        self._results = results
        self._wait = wait  # None: the run was over when its call returned

    def result(self) -> Results:
        """The outputs, once the run is over. Raises what went wrong with it, at every call."""
        if self._wait is not None:
            self._wait()
        return self._results

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled or copied; its result() can")

    def __repr__(self) -> str:
        return f"Run({', '.join(self._results)})"
