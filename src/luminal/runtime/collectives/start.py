"""One start of a program's ranks, as who starts them sees them: which have failed, and their end.

mpiexec ends all ranks where one fails, but for one that dies before MPI has come up on it: then the
others wait for it, and MPICH's proxies, each in a session of its own, are busy for ever. So whoever
starts ranks looks by itself. What watches a rank (`luminal_rank`) has a file in a folder of this
start. It is locked while that process lives, and says in the end how the rank has ended.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from luminal.base import host
from luminal.base.errors import InputError

VARIABLE = "LUMINAL_RANKS"
"""The environment variable by which a launcher names the folder to what watches ranks."""
LOOKS = 0.2  # seconds between looks
GRACE = 3.0  # seconds for mpiexec to end all by itself once a rank has failed
KILLED = 128 + signal.SIGKILL  # the status of a rank that was killed, as a shell says it
PREFIX = "luminal-ranks-"
MEMORY = Path("/dev/shm")


class Start:
    """The processes of one start. `folder`: where it may have a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="start-", dir=folder))
        self.variables = {VARIABLE: str(self._folder)}
        """What the launcher's environment has to have."""
        self.launcher: int | None = None
        """The number of the process that starts the others, once there is one."""
        self.is_ended = False
        """Were its processes killed here?"""
        self.status = 0
        """How the first rank that was seen to have failed has ended, as shells say it."""
        self._begun: dict[int, str] = {}
        self._failed = 0.0  # when that was seen

    def look(self) -> None:
        """Notes which processes there are, and kills them where a rank has failed and the launcher
        is there GRACE seconds later. To be called every LOOKS seconds.
        """
        self._note()
        if not self.status:
            code = next(filter(None, self._codes()), 0)
            self.status, self._failed = code if code >= 0 else 128 - code, time.monotonic()
        elif time.monotonic() - self._failed > GRACE:
            self.kill()

    @property
    def killed(self) -> int:
        """How many ranks a signal has ended, as those say who watched them."""
        return sum(code < 0 for code in self._codes())

    def kill(self) -> None:
        """Ends the launcher and all that it has started, in whatever session, by SIGKILL."""
        self.is_ended = True
        self._note()
        for number, begun in self._begun.items():
            # Parents first, so that they start nothing anew; and nobody who has got the number
            # since.
            if host.beginnings(number).get(number) == begun:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)

    def _note(self) -> None:
        if self.launcher is not None:
            self._begun |= host.beginnings(self.launcher)

    def _codes(self) -> Iterator[int]:
        """How ranks have ended, those that have: below 0 by a signal."""
        for path in self._folder.glob("[0-9]*"):
            with suppress(OSError), path.open("r+") as file:
                if text := file.read():
                    yield int(text)
                else:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while it is watched
                    yield KILLED


@contextmanager
def opened(place: Path | None = None) -> Iterator[Path]:
    """A folder for what a launcher and its ranks tell one another, which goes with the block;
    `place`: where it lies, else in memory.

    What launchers that were killed have left there is removed. Raises InputError where nothing can
    be written.
    """
    place = place or (MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir()))
    try:
        place.mkdir(parents=True, exist_ok=True)
        for left in place.glob(f"{PREFIX}*"):
            _remove_left(left)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise InputError(
            f"luminal launch: {place}: cannot be written: {error.strerror}; name another folder "
            "by --snapshots"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_left(folder: Path) -> None:
    """Removes a folder whose launcher is gone: a lock goes with the process that holds it."""
    with suppress(OSError), (folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
