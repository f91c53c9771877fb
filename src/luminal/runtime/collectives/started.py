"""What `luminal launch` runs on every rank: it becomes a rank, then runs the user's program.

A program fails here as it would under the interpreter alone, and takes all ranks with it: also by
SystemExit, which no hook of the interpreter shows.
"""

from __future__ import annotations

import io
import mmap
import os
import runpy
import sys
from types import TracebackType

from luminal.base import config
from luminal.runtime.collectives import membership, note
from luminal.runtime.collectives.hooks import status
from luminal.runtime.collectives.process import init


def run(program: list[str], page: mmap.mmap) -> None:
    """Runs a script, or what stands after "-m", with the arguments that follow.

    page: where this rank notes what it does, for the process that watches it.
    """
    note.watched = page
    # Lines are to be read while the program runs, and whole beside those of others.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)
    membership.join(config.variable(membership.VARIABLE))
    config.forget(membership.VARIABLE)  # what this rank starts is no part of the program
    engine = init()
    try:
        if program[0] == "-m":
            sys.argv = program[1:]
            sys.path[0] = os.getcwd()
            runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = program
            sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
            runpy.run_path(program[0], run_name="__main__")
    except SystemExit as done:
        if done.code in (0, None) or engine.size == 1:
            raise
        if not isinstance(done.code, int):
            print(done.code, file=sys.stderr)
        engine.abort(f"sys.exit({done.code!r})", done.code if isinstance(done.code, int) else 1)
    except BaseException as error:
        error.__traceback__ = _from_program(error.__traceback__)  # which is what is shown
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(status(error))


def _from_program(traceback: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that is below runpy: what the user has written."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename in (
        __file__, runpy.__file__, "<frozen runpy>"
    ):  # fmt: skip
        traceback = traceback.tb_next
    return traceback
