"""Private folders by paths: Windows closes what lies in a user's profile to other users itself.

There are no owners and modes to look at, and no descriptors of folders; links are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from luminal.runtime.private_folder import Entry, Unsafe


@contextmanager
def opened(root: Path, *names: str, create: bool = False) -> Iterator[WindowsFolder]:
    """A folder, checked as `private_folder.opened` says as far as Windows can."""
    path = root.joinpath(*names)
    if create:
        path.mkdir(parents=True, exist_ok=True)
    for folder in (root.joinpath(*names[:count]) for count in range(len(names) + 1)):
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise Unsafe(f"{folder} is not a directory, or a link to one")
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: no such folder")
    yield WindowsFolder(path)


class WindowsFolder:
    """A folder by its path; see `private_folder.Folder`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def is_writable(self) -> bool:
        """Whether files can be made here."""
        return os.access(self._path, os.W_OK)

    def names(self) -> list[str]:
        """The names of all that is in it."""
        return os.listdir(self._path)

    def files(self, ending: str) -> list[Entry]:
        """The files whose names end so; what goes meanwhile is left out."""
        listed = []
        for path in self._path.glob(f"*{ending}"):
            with suppress(FileNotFoundError):
                status = path.stat()
                if not path.is_dir():
                    listed.append(Entry(path.name, status.st_size, status.st_mtime))
        return listed

    def read(self, name: str) -> bytes | None:
        """A file, marked as used; None for anything else."""
        path = self._path / name
        if path.is_symlink() or not path.is_file():
            return None
        with suppress(OSError):
            os.utime(path)
        return path.read_bytes()

    def create(self, name: str, data: bytes) -> None:
        """Makes a file that was not there."""
        with open(self._path / name, "xb") as file:
            file.write(data)

    def rename(self, name: str, new: str) -> None:
        """Puts a file in the place of another one; one that is being read stays, and holds the same
        by its name.
        """
        try:
            os.replace(self._path / name, self._path / new)
        except PermissionError:
            self.remove(name)

    def remove(self, name: str) -> None:
        """Removes a file, if it is there and nobody has it open."""
        with suppress(FileNotFoundError, PermissionError):
            os.unlink(self._path / name)

    def settle(self, name: str) -> None:
        """Makes an empty file unless there is one; raises Unsafe for anything else."""
        path = self._path / name
        if path.is_symlink() or path.is_dir():
            raise Unsafe(f"{path} is a link, or no file")
        path.touch()

    def held(self, name: str, seconds: float) -> AbstractContextManager[None]:
        """Nobody is kept out: two may do the same work at once."""
        return nullcontext()
