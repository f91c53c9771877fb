"""Private folders by descriptors, owners and modes: Linux and macOS."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from luminal.runtime.private_folder import Entry, Unsafe

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # waits for no FIFO
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOOK = 0.01  # seconds between two looks whether a lock is free
_NO_FILE = (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.EACCES)  # nothing, a link, a socket, shut
_OTHERS_WRITE = 0o022
_OTHERS = 0o077


@contextmanager
def opened(root: Path, *names: str, create: bool = False) -> Iterator[PosixFolder]:
    """An open folder, checked as `private_folder.opened` says."""
    path = str(root)
    try:
        folder = _open(path, path, None, _OTHERS_WRITE, create)
    except (FileNotFoundError, Unsafe):
        if not create:
            raise
        root.parent.mkdir(parents=True, exist_ok=True)  # says why if what is there is in the way
        folder = _open(path, path, None, _OTHERS_WRITE, create)
    try:
        for name in names:
            path = os.path.join(path, name)
            inner = _open(name, path, folder, _OTHERS, create)
            os.close(folder)
            folder = inner
        yield PosixFolder(folder, path)
    finally:
        os.close(folder)


class PosixFolder:
    """An open folder; see `private_folder.Folder`."""

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor, self._path = descriptor, path

    def is_writable(self) -> bool:
        """Whether files can be made here."""
        return os.access(".", os.W_OK | os.X_OK, dir_fd=self._descriptor)

    def names(self) -> list[str]:
        """The names of all that is in it."""
        return os.listdir(self._descriptor)

    def files(self, ending: str) -> list[Entry]:
        """The files whose names end so; what goes meanwhile is left out."""
        with os.scandir(self._descriptor) as entries:
            return [file for e in entries if e.name.endswith(ending) for file in described(e)]

    def read(self, name: str) -> bytes | None:
        """A file of this user's, marked as used; None for anything else."""
        try:
            file = os.open(name, _FILE, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno in _NO_FILE:
                return None
            raise
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            os.close(file)
            return None
        with os.fdopen(file, "rb") as stream:
            with suppress(OSError):  # the file system may be one to read only
                os.utime(file)
            return stream.read()

    def create(self, name: str, data: bytes) -> None:
        """Makes a file that was not there."""
        # A file or a link of a random name can only have been put there by somebody else, so it is
        # never written to.
        file = os.open(name, _NEW, 0o600, dir_fd=self._descriptor)
        try:
            rest = memoryview(data)
            while rest:
                # write(2) may take less than it was given.
                rest = rest[os.write(file, rest) :]
        finally:
            os.close(file)

    def rename(self, name: str, new: str) -> None:
        """Puts a file in the place of another one, at once."""
        os.replace(name, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def settle(self, name: str) -> None:
        """Makes an empty file unless there is a private one; raises Unsafe for anything else."""
        path = os.path.join(self._path, name)
        try:
            self.create(name, b"")
        except FileExistsError:
            status = os.lstat(name, dir_fd=self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Unsafe(f"{path} is a link, or no file") from None
            if status.st_uid != os.getuid():
                raise Unsafe(f"{path} is owned by user {status.st_uid}, not by you") from None
            if status.st_mode & _OTHERS_WRITE:
                mode = stat.S_IMODE(status.st_mode)
                raise Unsafe(f"others may write {path} (mode {mode:o}); chmod it to 600") from None

    @contextmanager
    def held(self, name: str, seconds: float) -> Iterator[None]:
        """Inside there is at most one thread or process, or who has waited for so long."""
        self.settle(name)
        # The system gives back what a process held that has died, so nobody waits for one of those.
        # Looks, not one long wait: a process that is stopped holds what it has.
        file = os.open(name, _LOCK, dir_fd=self._descriptor)
        try:
            end = time.monotonic() + seconds
            while not _taken(file) and time.monotonic() < end:
                time.sleep(_LOOK)
            yield
        finally:
            with suppress(OSError):  # by name, as a forked child may have the file open, too
                fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)


def _taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def described(entry: os.DirEntry[str]) -> list[Entry]:
    """What is kept of a file; nothing of a folder, and of what is gone."""
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # another process removed it
        return []
    if stat.S_ISDIR(status.st_mode):
        return []
    return [Entry(entry.name, status.st_size, status.st_mtime)]


def _open(name: str, path: str, inside: int | None, closed: int, create: bool) -> int:
    try:
        folder = os.open(name, _FOLDER, dir_fd=inside)
    except FileNotFoundError:
        if not create:
            raise
        _make(name, inside)
        folder = os.open(name, _FOLDER, dir_fd=inside)
    except NotADirectoryError:
        raise Unsafe(f"{path} is not a directory, or a link to one") from None
    except OSError as error:
        error.filename = path
        raise
    try:
        _check(os.fstat(folder), path, closed)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _make(name: str, inside: int | None) -> None:
    try:
        # Closed from the start: made first and closed later, it would be open to others in between.
        os.mkdir(name, 0o700, dir_fd=inside)
    except FileExistsError:  # another process was first
        return


def _check(status: os.stat_result, path: str, closed: int) -> None:
    if status.st_uid != os.getuid():
        raise Unsafe(f"{path} is owned by user {status.st_uid}, not by you")
    if status.st_mode & closed:
        mode = stat.S_IMODE(status.st_mode)
        raise Unsafe(f"{path} is open to other users (mode {mode:o}); chmod it to 700")
