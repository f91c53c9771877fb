"""What libraries take for the products of a program and what our own kernels take: as searches have
timed them, so nothing is said of a kernel of which only one was.
"""

from __future__ import annotations

from collections.abc import Iterator

from luminal.kernel.knobs import Knobs
from luminal.program.launch_list import kernel_launches
from luminal.runtime.report import LibraryPrice
from luminal.search.genome import library_of
from luminal.search.space import Candidate

OWN = ""  # the library of a kernel of our own


class Timed:
    """The fewest seconds of a run that each kernel took, by its name: our own, and by a library."""

    def __init__(self) -> None:
        self._best: dict[str, dict[str, float]] = {}

    def note(self, name: str, knobs: Knobs, seconds: float) -> None:
        """A kernel took so long under these knobs."""
        best = self._best.setdefault(name, {})
        library = library_of(knobs) or OWN
        best[library] = min(seconds, best.get(library, seconds))

    def rows(self, candidate: Candidate) -> Iterator[LibraryPrice]:
        """Each kernel of a program that was timed both ways, with the fastest library."""
        labels = {
            launch.kernel: launch.label for launch in kernel_launches(candidate.program.launches)
        }
        for kernel, origin in enumerate(candidate.stages.origins):
            best = dict(self._best.get(origin.name, {}))
            own_seconds = best.pop(OWN, None)
            if own_seconds is not None and best and kernel in labels:
                library = min(best, key=best.__getitem__)
                yield LibraryPrice(labels[kernel], library, best[library], own_seconds)
