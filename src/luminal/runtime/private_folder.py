"""Folders of what will be trusted: the user's own, closed to all others, no links.

A folder is looked at each time it is opened, and what is in it is reached through the open folder:
nobody can put another one in its place in between.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from luminal.base.records import dataclass


class Unsafe(OSError):
    """A folder that others may change, or that is not a folder of this user's."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a folder: its bytes, and when it was last used, in seconds since 1970."""

    name: str
    size: int
    used: float


class Folder(Protocol):
    """An open folder that only this user can change. Names are of files right in it."""

    def is_writable(self) -> bool:
        """Whether files can be made here."""

    def names(self) -> list[str]:
        """The names of all that is in it."""

    def files(self, ending: str) -> list[Entry]:
        """The files whose names end so; what goes meanwhile is left out."""

    def read(self, name: str) -> bytes | None:
        """A file of this user's, marked as used; None for anything else."""

    def create(self, name: str, data: bytes) -> None:
        """Makes a file that was not there."""

    def rename(self, name: str, new: str) -> None:
        """Puts a file in the place of another one, at once."""

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""

    def settle(self, name: str) -> None:
        """Makes an empty file unless there is one of this user's, which others cannot write. Raises
        Unsafe for what is something else.
        """

    def held(self, name: str, seconds: float) -> AbstractContextManager[None]:
        """At most one thread or process is inside at a time, by a file that is made for it; after
        so many seconds of waiting this one goes in all the same.
        """


def opened(root: Path, *names: str, create: bool = False) -> AbstractContextManager[Folder]:
    """The folder `root/names...`; every folder from `root` on is checked.

    Others may look into the root, but not write there. With `create`, missing folders are made.
    Raises Unsafe where one breaks the rules, FileNotFoundError or another OSError.
    """
    if sys.platform == "win32":
        from luminal.runtime import private_folder_windows as system
    else:
        from luminal.runtime import private_folder_posix as system
    return system.opened(root, *names, create=create)
