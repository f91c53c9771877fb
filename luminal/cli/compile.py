"""`luminal compile`: compile the graph a user's function returns, and print any stage of it."""

from __future__ import annotations

import enum
import importlib.util
import inspect
import re
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
    dims: Annotated[
        list[str] | None, typer.Option(metavar="s=1..64", help="Narrow a dim; may be repeated.")
    ] = None,
) -> None:
    """Compile FILE.py:FUNCTION and print the stages asked for, else the kernels."""
    from luminal import dump as dumps
    from luminal import session
    from luminal.backends import registry

    graph = _call(target)
    if not isinstance(graph, session.Graph):
        raise InputError(
            f"compile: {target} returned a {type(graph).__name__}; it must return a luminal.Graph"
        )
    intervals = dict(map(_interval, dims or []))
    if not dump:
        typer.echo(str(session.compile(graph, backend, mode, intervals).report()))
        return
    stages = dumps.Dump(session.narrowed(graph, intervals), registry.find(backend))
    for stage in dump:
        typer.echo(stages.text(stage.value))


def _interval(text: str) -> tuple[str, tuple[int, int]]:
    """`s=1..64`, or `s=64` for one value."""
    found = re.fullmatch(r"(.+)=(\d+)(?:\.\.(\d+))?", text)
    if found is None:
        raise InputError(f"compile: --dims {text!r} must have the form NAME=LO..HI or NAME=VALUE")
    return found[1], (int(found[2]), int(found[3] or found[2]))


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
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise InputError(f"compile: {target}: {error}; it is called without arguments") from None
    return function()
