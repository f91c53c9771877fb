"""A program whose number of ranks may change: what its launcher and its ranks tell one another.

Both look into one folder, which lies in memory where there is such a place (/dev/shm) and outlives
every rank. Ranks keep there between steps what others go on from, so nothing is asked of one that
has died.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from luminal.base.records import dataclass

VARIABLE = "LUMINAL_MEMBERSHIP"
"""The environment variable by which a launcher names the folder to ranks."""


@dataclass(frozen=True, slots=True)
class Fits:
    """Which numbers of ranks a training can have: a batch falls into `rows` parts at most, of
    which each needs `per` ranks (the other axes of its mesh).
    """

    rows: int
    per: int

    def takes(self, count: int) -> bool:
        """Do so many ranks have equal parts?"""
        return count % self.per == 0 and self.rows % (count // self.per) == 0


@dataclass(frozen=True, slots=True)
class Membership:
    """The folder of a program whose number of ranks may change."""

    folder: Path

    # What ranks say, and ask.
    def tell_fits(self, fits: Fits) -> None:
        """Tells the launcher which numbers of ranks there may be."""
        self._write("fits", json.dumps([fits.rows, fits.per]))

    def stop(self) -> None:
        """Tells the launcher that this program ends in order to go on with other ranks."""
        self._write("stopped", "")

    @property
    def is_change_wanted(self) -> bool:
        """Shall the program stop at the end of this step, to go on with other ranks?"""
        return (self.folder / "wanted").exists()

    # What the launcher says, and asks.
    def want_change(self, is_wanted: bool) -> None:
        """Tells ranks whether they shall stop at the end of a step."""
        if is_wanted:
            self._write("wanted", "")
        else:
            (self.folder / "wanted").unlink(missing_ok=True)

    def fits(self) -> Fits:
        """The numbers of ranks that there may be, as ranks have told; any where they have not."""
        with suppress(OSError, ValueError):
            return Fits(*json.loads((self.folder / "fits").read_text()))
        return Fits(0, 1)

    def take_stopped(self) -> bool:
        """Has the program ended in order to go on with other ranks? Asked once for each run."""
        self.want_change(False)
        try:
            (self.folder / "stopped").unlink()
        except FileNotFoundError:
            return False
        return True

    def _write(self, name: str, text: str) -> None:
        partial = self.folder / f".{name}"
        partial.write_text(text)
        partial.replace(self.folder / name)


class _Current:
    """The membership of this process, where it is a rank of such a program."""

    membership: Membership | None = None


def join(folder: str | None) -> None:
    """From now on this process is a rank of the program whose launcher has that folder."""
    _Current.membership = None if folder is None else Membership(Path(folder))


def current() -> Membership | None:
    """The membership of this rank; None where the number of ranks does not change."""
    return _Current.membership
