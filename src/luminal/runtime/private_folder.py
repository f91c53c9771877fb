"""Folders of what will be trusted: the user's own, closed to all others, no links.

A folder is looked at each time it is opened, and what is in it is reached through the open folder:
nobody can put another one in its place in between.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # waits for no FIFO
_NO_FILE = (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.EACCES)  # nothing, a link, a socket, shut
_OTHERS_WRITE = 0o022
_OTHERS = 0o077


class Unsafe(OSError):
    """A folder that others may change, or that is not a folder of this user's."""


@contextmanager
def opened(root: Path, *names: str, create: bool = False) -> Iterator[int]:
    """A descriptor of the folder `root/names...`; every folder from `root` on is checked.

    Others may look into the root, but not write there. With `create`, missing folders are made.
    Raises Unsafe where one breaks the rules, FileNotFoundError or another OSError.
    """
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
        yield folder
    finally:
        os.close(folder)


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


def read_private(folder: int, name: str) -> bytes | None:
    """A file of this user's in an open folder, marked as used; None for anything else."""
    try:
        file = os.open(name, _FILE, dir_fd=folder)
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
