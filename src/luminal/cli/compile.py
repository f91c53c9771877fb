"""`luminal compile`: compile the graph a user's function returns, and print any stage of it."""

from __future__ import annotations

import enum
import importlib.util
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from luminal.base.errors import InputError
from luminal.cli.options import Backend, Mode
from luminal.cli.output import check_can_be_written, writing
from luminal.cli.user_code import user_code

if TYPE_CHECKING:  # imported when the command runs
    from luminal.runtime.executable import Executable
    from luminal.session import graph as session


class Stage(enum.StrEnum):
    """What --dump prints, in processing order."""

    HLIR = "hlir"
    ALGEBRA = "algebra"
    SELECTION = "selection"
    PROGRAM = "program"
    TILE = "tile"
    EXPANDED = "expanded"
    LLVM = "llvm"
    ASM = "asm"
    C = "c"
    SASS = "sass"
    HLIR_DOT = "hlir.dot"
    PROGRAM_DOT = "program.dot"


def command(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py:FUNCTION", help="A function that returns a Graph.")
    ],
    dump: Annotated[
        list[Stage] | None, typer.Option(help="Stage to print; may be given several times.")
    ] = None,
    backend: Backend = "cpu",
    mode: Mode = "fast",
    dims: Annotated[
        list[str] | None, typer.Option(metavar="s=1..64", help="Narrow a dim; may be repeated.")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Say which rules found equal programs, and what bounds kernels."
        ),
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Run it on random inputs and time every launch.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as .html or .json.")
    ] = None,
) -> None:
    """Compile FILE.py:FUNCTION and print the stages asked for, else the kernels."""
    from luminal.backends import registry
    from luminal.backends.backend import Interpreter
    from luminal.compiler import dump as dumps
    from luminal.session import graph as session

    graph = graph_of("compile", target)
    intervals = dict(interval("compile", text) for text in dims or [])
    # Said before anything is compiled: a search may take minutes, and its report would be lost.
    if report is not None:
        if report.suffix not in (".html", ".json"):
            raise InputError(
                f"compile: --report {report}: takes a name that ends in .html or .json"
            )
        check_can_be_written("compile: --report", report)
    if explain:
        from luminal.search.explain import explain as explained

        chosen = registry.find(backend)
        if isinstance(chosen, Interpreter):
            raise InputError(f"compile: --explain: backend {backend!r} does not choose programs")
        typer.echo(explained(session.narrowed(graph, intervals), chosen))
    if not (dump or explain) or profile or report is not None:
        executable = session.compile(graph, backend, mode, intervals)
        _report(executable, graph, intervals, profile, report)
    if not dump:
        return
    stages_of_search = session.stages(graph, backend, mode, intervals) if mode != "fast" else None
    stages = dumps.Dump(
        session.narrowed(graph, intervals), registry.find(backend), stages_of_search
    )
    for stage in dump:
        typer.echo(stages.text(stage.value))


def _report(
    executable: Executable,
    graph: session.Graph,
    intervals: Mapping[str, tuple[int, int]],
    timed: bool,
    path: Path | None,
) -> None:
    """Prints the report, profiled on random arrays if asked for, and writes it to `path`."""
    report = executable.report()
    if timed:
        leaves, dims = random_leaves(executable, intervals, graph.values)
        report = executable.profile(leaves, dims=dims)
    typer.echo(str(report))
    if path is None:
        return
    with writing("compile: --report", path):
        if path.suffix == ".json":
            path.write_text(report.to_json() + "\n", encoding="utf-8")
        else:
            executable.viz(path)


def random_leaves(
    executable: Executable, intervals: Mapping[str, tuple[int, int]], values: Mapping[str, Any]
) -> tuple[dict[Any, Any], dict[str, int]]:
    """Arrays for what has no value yet, and the dims that they are for: the upper ends of what the
    user narrowed, where a kernel that scales badly shows most.
    """
    from luminal.search import operands

    wanted = {name: hi for name, (_, hi) in intervals.items()}
    arrays = operands.draw(executable.graph, wanted, values, seed=0)
    return {**arrays.inputs, **arrays.parameters}, arrays.dims


def interval(command: str, text: str) -> tuple[str, tuple[int, int]]:
    """The name and interval of a text such as `s=1..64`, or `s=64` for one value."""
    matched = re.fullmatch(r"(.+)=(\d+)(?:\.\.(\d+))?", text)
    if matched is None:
        raise InputError(f"{command}: --dims {text!r} must have the form NAME=LO..HI or NAME=VALUE")
    return matched[1], (int(matched[2]), int(matched[3] or matched[2]))


def graph_of(command: str, target: str) -> session.Graph:
    """The Graph that a function of a file returns. Raises InputError."""
    from luminal.session import graph as session

    graph = _call(command, target)
    if not isinstance(graph, session.Graph):
        raise InputError(
            f"{command}: {target} returned a {type(graph).__name__}; it must return a luminal.Graph"
        )
    return graph


def _call(command: str, target: str) -> Any:
    """Import the file as `python FILE.py` would, and call the function without arguments."""
    file, _, name = target.rpartition(":")
    path = Path(file)
    if path.suffix != ".py" or not name.isidentifier():
        raise InputError(f"{command}: {target!r} must have the form FILE.py:FUNCTION")
    if not path.is_file():
        raise InputError(f"{command}: {path}: no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # a .py file always has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    sys.modules[path.stem] = module  # as an import does: dataclasses and pickle look there
    with user_code(__file__):
        spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{command}: {path} has no function {name!r}")
    try:
        # Tried before the call and apart from it: a TypeError that the user's own code raises is a
        # bug of that code and is told with its lines.
        inspect.signature(function).bind()
    except TypeError as error:
        raise InputError(f"{command}: {target}: {error}; it is called without arguments") from None
    with user_code(__file__):
        return function()
