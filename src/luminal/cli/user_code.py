"""Code of a user that a command runs: what it raises is told as Python tells it of a script."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import typer

from luminal.base import config
from luminal.base.errors import LuminalError


@contextmanager
def user_code(*ours: str) -> Iterator[None]:
    """What the block raises ends the command with status 1 and the user's frames: those of the
    files `ours` come before them. A LuminalError is a message, as anywhere; LUMINAL_DEBUG=1 tells
    all frames.
    """
    try:
        yield
    except LuminalError:
        raise
    except Exception as error:
        if config.get("LUMINAL_DEBUG") >= 1:
            raise
        traceback.print_exception(error.with_traceback(_theirs(error.__traceback__, ours)))
        sys.stderr.flush()
        raise typer.Exit(1) from None


def _theirs(frames: TracebackType | None, ours: tuple[str, ...]) -> TracebackType | None:
    """The part of a traceback below frames of this file, of `ours` and of Python's imports."""
    while frames is not None:
        name = frames.tb_frame.f_code.co_filename
        if name not in (__file__, *ours) and not name.startswith("<frozen importlib"):
            break
        frames = frames.tb_next
    return frames
