"""`luminal launch`: a program on several ranks, started again where some have died, or others are
wanted.

All ranks start anew then, since what carries values between them cannot lose or win one. They go on
from what the ranks before have left in the folder of their membership.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from luminal.base.errors import InputError
from luminal.runtime.collectives import membership
from luminal.runtime.collectives.launcher import Ended, Ranks, Signals, run
from luminal.runtime.collectives.membership import Membership
from luminal.runtime.collectives.start import opened


def launch(
    ranks: Ranks, program: Sequence[str], restarts: int = 0, *, wish: Path | None = None,
    snapshots: Path | None = None,
) -> int:  # fmt: skip
    """Runs a program, a script or ("-m", module) and its arguments, until it ends, and again where
    it has failed or stopped for others. Returns the exit status: of the rank that failed, 130 after
    Ctrl-C.

    wish: a file with the number of ranks that there are to be, which may change at any time.
    snapshots: where ranks leave what others go on from, in memory by default.
    """
    with Signals() as signals, opened(snapshots) as folder:
        if not restarts and wish is None:
            return run(ranks.first(), program, signals, folder).status
        group = Membership(folder)
        return _Elastic(ranks, program, restarts, wish, group, signals).run()


class _Elastic:
    """A program whose ranks may change, and what was decided of it."""

    def __init__(
        self, ranks: Ranks, program: Sequence[str], restarts: int, wish: Path | None,
        group: Membership, signals: Signals,
    ) -> None:  # fmt: skip
        self._ranks, self._program, self._left = ranks, program, restarts
        self._wish, self._group, self._signals = wish, group, signals
        self._unfit: set[int] = set()  # numbers that the program has refused
        self._refused = ""  # what the file said last that is no number of ranks

    def run(self) -> int:
        """Runs it to its end."""
        count = self._near(self._wanted(self._ranks.first()))
        while True:
            status, dead = self._run(count)
            is_stopped = self._group.take_stopped()
            if self._signals.first is not None or (status == 0 and not is_stopped):
                return status
            before = count
            if not self._group.fits().takes(count):
                self._unfit.add(count)
            if status:
                if not self._may_restart(status, count - dead):
                    return status
                count = max(self._ranks.least, count - dead)
            count = self._near(self._wanted(count))
            self._say(
                f"{before} ranks have stopped between steps; {count} go on"
                if not status
                else f"the program has ended with status {status}; {count} ranks start again, "
                f"{self._left} restarts are left"
            )

    def _run(self, count: int) -> Ended:
        def look() -> None:
            self._group.want_change(self._near(self._wanted(count)) != count)

        folder = self._group.folder
        variables = {membership.VARIABLE: str(folder)}
        looks = look if self._wish else None
        return run(count, self._program, self._signals, folder, variables, looks)

    def _may_restart(self, status: int, alive: int) -> bool:
        """Is one more start allowed? Says why not."""
        if self._left:
            self._left -= 1
            return True
        least = self._ranks.least
        few = f", {alive} ranks are left of at least {least}" if alive < least else ""
        self._say(
            f"the program has ended with status {status}{few}, and no restart is left: give more "
            "--restarts"
        )
        return False

    def _near(self, count: int) -> int:
        """The number of ranks near to one. Raises InputError where the program takes none."""
        fits = self._group.fits()
        near = self._ranks.near(count, fits, self._unfit)
        if near is None:
            of_ranks = f" of {fits.per} ranks" if fits.per > 1 else ""
            raise InputError(
                f"luminal launch: {self._ranks}: {fits.rows} rows of a batch (or leaves) fall into "
                f"as many equal parts{of_ranks} for none of these numbers; give -n others, or "
                "batches that divide"
            )
        return near

    def _wanted(self, otherwise: int) -> int:
        """The number that the file says, where it says one that may be."""
        text = ""
        if self._wish is not None:
            with suppress(OSError, UnicodeDecodeError):
                text = self._wish.read_text().strip()
        if text.isdecimal() and self._ranks.least <= int(text) <= self._ranks.most:
            return int(text)
        if text and text != self._refused:
            self._refused = text
            self._say(f"{self._wish} says {text!r}, which is no number of {self._ranks}; it stays")
        return otherwise

    @staticmethod
    def _say(text: str) -> None:
        print(f"luminal launch: {text}", file=sys.stderr, flush=True)
