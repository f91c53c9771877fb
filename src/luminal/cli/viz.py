"""`luminal viz`: a page of what the compiler did with a graph, a model or an ONNX file."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from luminal.base.errors import InputError
from luminal.cli.compile import graph_of, interval, random_leaves
from luminal.cli.options import Backend, Mode
from luminal.cli.output import check_can_be_written

if TYPE_CHECKING:  # imported when the command runs
    from luminal.runtime.executable import Executable


SQLITE = b"SQLite format 3\0"
"""What a file of SQLite begins with (sqlite.org, Database File Format)."""
CONTEXT = 512
"""Tokens of a language model's caches: enough to see what a step does, and little memory."""


class Program(enum.StrEnum):
    """The programs of a language model."""

    DECODE = "decode"
    PREFILL = "prefill"


def command(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET | TRACE TRACE",
            help="FILE.py:FUNCTION (of a Graph), a model's folder or GGUF, MODEL.onnx, FILE.trace, "
            "a database of searches; or two traces: the second, and what differs from the first.",
        ),
    ],
    backend: Backend = "cpu",
    mode: Mode = "fast",
    profile: Annotated[
        bool, typer.Option(help="Run it on random inputs and time every launch.")
    ] = True,
    dims: Annotated[
        list[str] | None, typer.Option(metavar="s=1..64", help="Narrow a dim; may be repeated.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write the page as one file; serve nothing."),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Serve on this port; 0: any that is free.")
    ] = 0,
    program: Annotated[
        Program, typer.Option(help="The program of a language model: decode reads one token.")
    ] = Program.DECODE,
    context: Annotated[
        int, typer.Option(min=2, help="The tokens that a language model's caches hold.")
    ] = CONTEXT,
) -> None:
    """Show what the compiler did with TARGET: graph, kernels, memory, timeline, search."""
    # Said before anything is compiled: a search may take minutes, and its page would be lost.
    if export is not None:
        if export.suffix != ".html":
            raise InputError(f"viz: --export {export}: takes a name that ends in .html")
        check_can_be_written("viz: --export", export)
    *before, target = _checked(targets)
    asked = _Asked(
        target, backend, mode, dict(interval("viz", text) for text in dims or []), profile
    )
    path = Path(target)
    if path.suffix == ".onnx":
        document = _of_onnx(asked, dims or [])
    elif path.suffix == ".trace":
        from luminal.viz import saved_trace

        document = saved_trace.document_of(path, *before)
    elif _is_database(path):
        from luminal.viz import searches

        document = searches.document_of(path)
    elif path.exists() and path.suffix != ".py":
        document = _of_model(asked, program, context)
    else:
        document = _of_graph(asked)
    from luminal.viz.show import show

    show(document, export, port, browser)


def _checked(targets: list[str]) -> list[str]:
    """One target, or two traces. Raises InputError for others."""
    if len(targets) > 1 and (
        len(targets) > 2 or not all(name.endswith(".trace") for name in targets)
    ):
        raise InputError(
            f"viz: {' '.join(targets)}: takes one target, or two traces to see beside each other"
        )
    return targets


def _is_database(path: Path) -> bool:
    """Is it a file of SQLite, or named as one?"""
    if path.suffix == ".sqlite3" or not path.is_file():
        return path.suffix == ".sqlite3"
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE


class _Asked(NamedTuple):
    """What the user named, and how it is to be compiled."""

    target: str
    backend: str
    mode: str
    intervals: Mapping[str, tuple[int, int]]
    is_timed: bool

    def document(
        self, executable: Executable, values: Mapping[str, Any], title: str
    ) -> dict[str, Any]:
        """The document of a program, which runs on random arrays first if it is to be timed; one
        for a chip that is not here says that it was not.
        """
        from luminal.runtime.absent_driver import AbsentError

        untimed = {}
        if self.is_timed:
            leaves, dims = random_leaves(executable, self.intervals, values)
            try:
                executable.profile(leaves, dims=dims)
            except AbsentError as error:
                untimed = {"kernels": f"No launch was timed: {error}"}
        document = executable.document()
        return {**document, "title": title, "notes": {**document["notes"], **untimed}}


def _of_graph(asked: _Asked) -> Mapping[str, Any]:
    """The document of the graph that a user's function returns."""
    from luminal.session import graph as session

    if asked.target.endswith(".py"):
        raise InputError(
            f"viz: {asked.target}: name a function of it that returns a Graph, as in "
            f"{asked.target}:model"
        )
    if ":" not in asked.target:
        raise InputError(
            f"viz: {asked.target}: no such file; takes FILE.py:FUNCTION, a model's folder or GGUF "
            "file, or MODEL.onnx"
        )
    graph = graph_of("viz", asked.target)
    executable = session.compile(graph, asked.backend, asked.mode, asked.intervals)
    return asked.document(executable, graph.values, asked.target)


def _of_onnx(asked: _Asked, dims: list[str]) -> Mapping[str, Any]:
    """The document of an ONNX model for random arrays; of several programs that of the longest."""
    from luminal.cli import onnx_inputs
    from luminal.runtime.absent_driver import AbsentError

    model = onnx_inputs.load_model(Path(asked.target))
    model = model.compile(mode=asked.mode, backend=asked.backend)
    arrays = onnx_inputs.arrays_of(model, [], onnx_inputs.sizes(dims), random=True)
    with suppress(AbsentError):  # what is compiled till then can be seen
        model.profile(arrays) if asked.is_timed else model(arrays)
    executables = model.executables()
    if not executables:
        raise InputError(f"viz: {asked.target}: nothing of it is compiled: it has only constants")
    largest = max(executables, key=lambda executable: len(executable.report().kernels))
    of = f", the largest of {len(executables)} programs" if len(executables) > 1 else ""
    return {**largest.document(), "title": f"{asked.target}{of}"}


def _of_model(asked: _Asked, program: Program, context: int) -> Mapping[str, Any]:
    """The document of a program of a language model. Its weights stay as they lie in the file."""
    from luminal.models.architectures import decoder_of
    from luminal.models.checkpoint import load_checkpoint
    from luminal.models.programs import Programs

    checkpoint = load_checkpoint(
        asked.target, None, keep_quantized=None, keep_order=True, with_tokenizer=False,
        ahead=asked.is_timed,
    )  # fmt: skip
    model = decoder_of(checkpoint, None)
    context = min(context, model.longest_text)
    prefill, decode = Programs(model, context, asked.mode, asked.backend).pair()
    executable = prefill if program is Program.PREFILL else decode
    return asked.document(executable, {}, f"{asked.target}, {program.value}")
