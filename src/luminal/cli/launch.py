"""`luminal launch`: a program on several ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from luminal.base import config, host
from luminal.base.errors import InputError

SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""What follows the script is the script's, options too."""


def command(
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCRIPT [ARGS]...", help="A Python program and its arguments."),
    ] = None,
    ranks: Annotated[
        str, typer.Option("-n", metavar="N|LEAST:MOST", help="How many ranks there are.")
    ] = "1",
    module: Annotated[
        str | None, typer.Option("-m", metavar="MODULE", help="A module to run, as of python -m.")
    ] = None,
    restarts: Annotated[
        int, typer.Option(min=0, help="How often the program starts again where it has failed.")
    ] = 0,
    ranks_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="How many ranks to have, looked at between steps."),
    ] = None,
    snapshots: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where ranks leave what others go on from."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(help="Most seconds that a rank waits for others.", show_default="60"),
    ] = None,
) -> None:
    """Run a Python program on several ranks, by the mpiexec of this environment.

    Where one fails, all end. With --restarts they start again, those that are left of -n 2:8, and a
    training by `fit` goes on between two steps, as it does where --ranks-file asks for others.
    """
    arguments = list(program or ()) if module is None else ["-m", module, *(program or ())]
    if not arguments:
        raise InputError("luminal launch: no program; name a script, or a module after -m")
    host.require_posix("luminal launch")
    if timeout is not None and not 0 < timeout < float("inf"):
        raise InputError(f"luminal launch: --timeout {timeout:g}: takes seconds > 0")
    from luminal.runtime.collectives.elastic import launch
    from luminal.runtime.collectives.launcher import Ranks

    if timeout is not None:
        config.provide(LUMINAL_COLLECTIVE_TIMEOUT=timeout)
    status = launch(Ranks.parse(ranks), arguments, restarts, wish=ranks_file, snapshots=snapshots)
    raise typer.Exit(status)
