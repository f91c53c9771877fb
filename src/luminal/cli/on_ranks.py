"""A command whose model lies on several ranks: each of them runs it, and the first one prints."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import typer

from luminal.base import host, installation
from luminal.base.errors import InputError

if TYPE_CHECKING:
    from luminal.models import LanguageModel
    from luminal.serve.ranks import Ranks


def on_ranks(tensor: int) -> Ranks:
    """Who runs the model. Where more ranks are asked for than there are, they are started with the
    words of this command, and this process ends as they do.

    Raises InputError where there is no MPI.
    """
    from luminal.serve.ranks import ALONE, Together

    if tensor == 1:
        return ALONE
    host.require_posix("--tensor")
    from luminal.runtime.collectives.launcher import Ranks as Count
    from luminal.runtime.collectives.launcher import Signals, run
    from luminal.runtime.collectives.mpich import mpiexec
    from luminal.runtime.collectives.process import init
    from luminal.runtime.collectives.start import opened

    engine = init()
    if engine.size != tensor:
        if mpiexec() is None:
            raise InputError(f"--tensor {tensor}: there is no mpiexec; {installation.hint('mpi')}")
        count, words = Count.parse(str(tensor)).first(), ["-m", "luminal", *sys.argv[1:]]
        with Signals() as signals, opened() as folder:
            raise typer.Exit(run(count, words, signals, folder, numbered=False).status)
    if engine.rank:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (until this process ends)
    return Together(engine)


def cut(model: LanguageModel, ranks: Ranks) -> None:
    """Gives each rank its part of a model. Raises InputError where they do not divide it."""
    from luminal.serve.ranks import Together

    ranks.cut(model.model)
    if isinstance(ranks, Together):
        model.programs.cut(ranks.mesh)
