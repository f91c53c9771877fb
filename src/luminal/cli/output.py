"""Files that subcommands write because an option names them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from luminal.base.errors import InputError


@contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """The block writes `path`: where it cannot, an InputError names the option.

    A pipe that nobody reads any more stays a BrokenPipeError: `main` ends as the signal would.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{option} {path}: cannot be written: {error.strerror}") from None


def check_can_be_written(option: str, path: Path) -> None:
    """Raises InputError for a file that could not be written: before there is much work to lose."""
    folder = path.parent
    if not folder.is_dir():
        reason = f"there is no folder {folder}; make it, or name another"
    elif path.is_dir():
        reason = "it is a folder; name a file"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        reason = "you may not write there; name another"
    else:
        return
    raise InputError(f"{option} {path}: cannot be written: {reason}")
