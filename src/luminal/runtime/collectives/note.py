"""What this rank does, for those who ask, and for the process that watches it."""

from __future__ import annotations

import mmap

from luminal.runtime.collectives.whereabouts import Doing, Whereabouts

LONGEST = 300  # characters of a title

watched: mmap.mmap | None = None
"""The page of the process that watches this one, under `luminal launch`."""


class Note:
    """What a rank does, and the last collective that it has started."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._doing: Doing = "computes"
        self._last = ""
        self._write()

    @property
    def doing(self) -> Doing:
        """What the rank does now."""
        return self._doing

    @doing.setter
    def doing(self, doing: Doing) -> None:
        self._doing = doing
        self._write()

    def start(self, title: str) -> None:
        """Notes that a collective has been started."""
        self._last = title
        self._write()

    def whereabouts(self, started: int) -> Whereabouts:
        """The record for another rank, of whose group so many collectives were started here."""
        return Whereabouts(self._rank, self._doing, started, self._last[:LONGEST])

    def _write(self) -> None:
        # Of what is killed nothing is asked: the text lies ready.
        if watched is not None:
            text = str(self.whereabouts(0)).encode()[: len(watched)]
            watched[:] = text.ljust(len(watched), b"\0")
