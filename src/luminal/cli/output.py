"""Files that subcommands write because an option names them."""

from __future__ import annotations

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
