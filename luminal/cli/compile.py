"""`luminal compile`: compile the graph a user's function returns, and print any stage of it."""

from __future__ import annotations

import enum
import importlib.util
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from luminal.errors import InputError


class Stage(enum.StrEnum):
    """What --dump prints, in processing order."""

    HLIR = "hlir"
    ALGEBRA = "algebra"
    SELECTION = "selection"
    PROGRAM = "program"
    TILE = "tile"
    LLVM = "llvm"
    ASM = "asm"
    HLIR_DOT = "hlir.dot"
    PROGRAM_DOT = "program.dot"


def command(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py:FUNCTION", help="A function that returns a Graph.")
    ],
    dump: Annotated[
        list[Stage] | None, typer.Option(help="Stage to print; may be given several times.")
    ] = None,
    backend: Annotated[str, typer.Option(help="Where to run; see `luminal devices`.")] = "cpu",
    mode: Annotated[str, typer.Option(help="How to compile; see lm.compile.")] = "fast",
) -> None:
    """Compile FILE.py:FUNCTION and print the stages asked for, else the kernels."""
    from luminal import session

    graph = _call(target)
    if not isinstance(graph, session.Graph):
        raise InputError(
            f"compile: {target} returned a {type(graph).__name__}; it must return a luminal.Graph"
        )
    executable = session.compile(graph, backend=backend, mode=mode)
    for stage in dump or []:
        typer.echo(executable.dump(stage.value))
    if not dump:
        for row in executable.report().kernels:
            typer.echo(str(row))


def _call(target: str) -> Any:
    """Import the file as `python FILE.py` would, and call the function without arguments."""
    file, _, name = target.rpartition(":")
    path = Path(file)
    if path.suffix != ".py" or not name.isidentifier():
        raise InputError(f"compile: {target!r} must have the form FILE.py:FUNCTION")
    if not path.is_file():
        raise InputError(f"compile: {path}: no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # a .py file always has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    sys.modules[path.stem] = module  # as an import does: dataclasses and pickle look there
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"compile: {path} has no function {name!r}")
    return function()
