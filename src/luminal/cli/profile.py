"""`luminal profile`: where the time of a program goes, in the terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from luminal.base import config
from luminal.base.errors import InputError
from luminal.base.trace_file import refuse_another
from luminal.cli import profile_rows
from luminal.cli.compile import graph_of, random_leaves
from luminal.cli.console import console, table
from luminal.cli.output import check_can_be_written, writing
from luminal.cli.profile_rows import Row
from luminal.runtime.report_text import amount, duration
from luminal.runtime.roofline import Peaks
from luminal.runtime.trace import Program, Trace, read

SETTINGS = {"ignore_unknown_options": True}
NARROW = 100  # columns below which a table leaves out what is least needed
RUNS = 40  # of a function's graph: six of them have clocks
BAR = 12  # characters
SIGNALLED = 128  # and its number: the status of what a signal ended, as shells say it
PROGRAMS = 4  # that are told one by one

Sort = StrEnum("Sort", ["time", "run", "trips", "flops", "bytes", "roofline", "name"])
"""What the table is sorted by: the names of `profile_rows.SORTS`."""


def command(
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE.py:FUNCTION | TRACE [TRACE] | -- COMMAND...",
            help="A function that returns a Graph; one trace, or two to compare; or a command.",
        ),
    ],
    sort: Annotated[Sort, typer.Option(help="What the table is sorted by.")] = Sort["time"],
    limit: Annotated[int, typer.Option(min=1, help="Most rows of the table.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as JSON.")] = False,
    perfetto: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the trace for ui.perfetto.dev as well."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write the viewer's page of it as well."),
    ] = None,
    together: Annotated[
        bool, typer.Option("--together", help="Take traces as one, as of ranks on machines.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the trace of a function or command.")
    ] = None,
) -> None:
    """Show where time goes: launches by their share, with your lines, and what lies between them.

    `luminal profile -- python train.py --epochs 1` runs a command with LUMINAL_TRACE and shows what
    it did; a saved trace is shown again; of two traces the differences, most time lost first.
    """
    for option, file in (("--perfetto", perfetto), ("--html", html), ("--save", save)):
        if file is not None:
            check_can_be_written(f"profile: {option}", file)
    if save is not None:
        refuse_another("profile: --save ", save)
    paths = [Path(text) for text in target]
    before = None
    if len(target) == 2 and all(map(_may_be_trace, paths)) and save is None and not together:
        before, trace, status = read(paths[0]), read(paths[1]), 0
    else:
        trace, status = _traced(target, together, save)
    if perfetto is not None:
        from luminal.runtime.perfetto import events

        with writing("profile: --perfetto", perfetto):
            perfetto.write_text(events(trace), encoding="utf-8")
    peaks = None if before is not None else profile_rows.peaks_here(trace)
    if before is not None:
        _compare(before, trace, limit, as_json)
    else:
        _tell(trace, peaks, sort, limit, as_json)
    if html is not None:
        title = " ".join(target) if before is None else target[1]
        _write_page(html, trace, title, None if before is None else (target[0], before), peaks)
    if status:
        raise typer.Exit(status)


def _traced(target: Sequence[str], together: bool, save: Path | None) -> tuple[Trace, int]:
    """The trace that is named, or that a function's graph or a command writes, and the status that
    the command ends with.
    """
    paths = [Path(text) for text in target]
    if all(map(_may_be_trace, paths)) and (together or len(target) == 1):
        return read(*paths), 0
    if len(target) == 1 and ".py:" in target[0]:
        with _file(save) as path:
            _run_graph(target[0], path)
            return read(path), 0
    if len(target) == 1 and paths[0].suffix in (".py", ".trace"):
        how = f"write `luminal profile -- python {target[0]}`" if paths[0].suffix == ".py" else ""
        raise InputError(f"profile: {target[0]}: {how or 'no such file'}")
    with _file(save) as path:
        earlier = _stamp(path)
        status = _run_command(target, path)
        if _stamp(path) in (None, earlier):
            _tell_of_no_trace(target, status)
        return read(path), status


def _tell(trace: Trace, peaks: Peaks | None, sort: Sort, limit: int, as_json: bool) -> None:
    """Prints what a trace says."""
    rows, doubts = profile_rows.rows_of(trace, peaks)
    rows.sort(key=profile_rows.SORTS[sort.value])
    if as_json:
        typer.echo(json.dumps(profile_rows.facts(trace, rows, doubts), indent=2))
    else:
        _show(trace, rows, doubts, limit)


def _write_page(
    file: Path,
    trace: Trace,
    title: str,
    before: tuple[str, Trace] | None,
    peaks: Peaks | None,
) -> None:
    """Writes the viewer's page of a trace. Raises InputError where nothing ran in it."""
    from luminal.viz.saved_trace import document
    from luminal.viz.show import show

    if not trace.programs or (before is not None and not before[1].programs):
        raise InputError(f"profile: --html {file}: nothing ran in {title}, so no page is written")
    show(document(trace, title, before, peaks), file)


def _may_be_trace(path: Path) -> bool:
    """Is it a file that is no program?"""
    is_program = path.suffix == ".py" or os.access(path, os.X_OK)
    return path.is_file() and (path.suffix == ".trace" or not is_program)


@contextmanager
def _file(kept: Path | None) -> Iterator[Path]:
    """The file of a trace, which goes with the block unless it is to be kept."""
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="luminal-profile-") as folder:
        yield Path(folder, "run.trace")


def _run_graph(target: str, path: Path) -> None:
    """Compiles a function's graph and runs it on random arrays."""
    from luminal.session import graph as session

    graph = graph_of("profile", target)
    with config.override(LUMINAL_TRACE=path):
        executable = session.compile(graph, None, "fast", {})
        leaves, dims = random_leaves(executable, {}, graph.values)
        for _ in range(RUNS):
            executable(leaves, dims=dims)


def _run_command(command: Sequence[str], path: Path) -> int:
    """Runs a command that writes the trace; its exit status as a shell has it."""
    environment = {**config.child_environment(), "LUMINAL_TRACE": str(path.absolute())}
    command = [sys.executable, *command[1:]] if command[0] == "python" else command
    try:
        status = subprocess.run(command, env=environment, check=False).returncode
    except OSError as error:
        raise InputError(
            f"profile: {command[0]}: cannot be run: {error.strerror}; takes FILE.py:FUNCTION, a "
            "trace that LUMINAL_TRACE wrote, or -- and a command"
        ) from None
    return SIGNALLED - status if status < 0 else status


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What changes where a file is written; None for no file."""
    try:
        told = path.stat()
    except OSError:
        return None
    return told.st_ino, told.st_size, told.st_mtime_ns


def _tell_of_no_trace(command: Sequence[str], status: int) -> NoReturn:
    """Ends as a command did that used nothing of Luminal: there is nothing to show of it."""
    typer.echo(
        f"luminal: profile: {' '.join(command)} compiled nothing with Luminal, so there is nothing "
        f"to show (its exit status is {status})",
        err=True,
    )
    raise typer.Exit(status)


def _show(trace: Trace, rows: Sequence[Row], doubts: Sequence[str], limit: int) -> None:
    for line in _totals(trace):
        typer.echo(line)
    largest = sorted(trace.programs, key=lambda program: -program.total_seconds)
    for program in largest[:PROGRAMS]:
        typer.echo(_explained(program))
    if largest[PROGRAMS:]:
        rest = sum(program.total_seconds for program in largest[PROGRAMS:])
        typer.echo(f"{len(largest) - PROGRAMS} more programs: {duration(rest)}")
    if rows:
        _print_rows(rows[:limit], len(trace.programs) > 1)
    if rows[limit:]:
        share = sum(row.share for row in rows[limit:])
        typer.echo(f"... and {len(rows) - limit} more, {share:.1%} of the time; --limit shows them")
    for doubt in doubts:
        typer.echo(f"! {doubt}")


def _totals(trace: Trace) -> Iterator[str]:
    told = profile_rows.totals(trace)
    parts = [f"compiling {duration(told.compiling)}"]
    parts += [f"searching {duration(told.searching)}"] if told.searching else []
    runs = sum(program.count for program in trace.programs)
    parts.append(f"{runs:,} runs {duration(told.runs)}")
    several = f" in {len(trace.processes)} processes" if len(trace.processes) > 1 else ""
    if told.compiling + told.searching + told.runs > told.seconds:
        several += ", in all threads"
    yield f"{duration(told.seconds)}{several}: {', '.join(parts)}"
    if told.launches:
        yield (
            f"of runs with clocks: launches {told.launches / told.runs:.0%}, threads that wait in "
            f"them {told.waiting / told.runs:.0%}, before and after them "
            f"{told.between / told.runs:.0%}"
        )


def _explained(program: Program) -> str:
    """What a run takes, and where the time of one with clocks went."""
    head = f"{profile_rows.titled(program)}: {program.count:,} runs"
    head += f" {duration(program.total_seconds)}"
    if program.run_seconds is not None:
        head += f", one takes {duration(program.run_seconds)}"
    arena = max((memory.arena for memory in program.memory), default=0)
    head += f", arena {amount(arena, 'B')}" if arena else ""
    parts = program.parts
    if parts is None:
        return f"{head}; none had clocks in it (the second one has)"
    before = "wake threads" if program.dispatch is None else "queue and copy"
    return (
        f"{head}\n  one with clocks takes {duration(parts.whole)}: prepare "
        f"{duration(parts.preparing)}, {before} {duration(parts.starting)}, launches "
        f"{duration(parts.launches)} (of these {duration(parts.waiting)} waits of threads), end "
        f"{duration(parts.ending)}"
    )


def _print_rows(rows: Sequence[Row], has_programs: bool) -> None:
    screen = console()
    is_wide = screen.width >= NARROW
    largest = max((row.share for row in rows), default=1.0) or 1.0
    mark = "#" if (screen.encoding or "ascii").lower().startswith("ascii") else "█"
    heads = ["share", "", "a run"] if is_wide else ["share", "a run"]
    heads += ["trips", "bound", "roofline"] if is_wide else []
    has_lines = any(row.lines for row in rows)  # a served model has none
    heads += (["program"] if has_programs else []) + ["kernel"] + (["lines"] if has_lines else [])
    shown = table(*heads, box=None)
    for row in rows:
        cells = [f"{row.share:.1%}"]
        cells += [mark * round(BAR * row.share / largest)] if is_wide else []
        cells.append(duration(row.seconds))
        if is_wide:
            roofline = "" if row.roofline is None else f"{row.roofline:.0%}"
            cells += [f"{row.row.trips:,}", row.bound or "", roofline]
        cells += [str(row.program + 1)] if has_programs else []
        cells.append(row.row.origin.partition(" (")[0] or row.row.label)
        shown.add_row(*cells, *([row.lines] if has_lines else []))
    screen.print(shown)


def _compare(before: Trace, after: Trace, limit: int, as_json: bool) -> None:
    launches = profile_rows.lost(before, after)
    if as_json:
        typer.echo(json.dumps([{**row._asdict(), "lost": row.lost} for row in launches], indent=2))
        return
    whole = sum(row.lost for row in launches)
    word = "slower" if whole > 0 else "faster"
    typer.echo(f"a run of each program: {duration(abs(whole))} {word} in the second trace")
    shown = table("lost", "first", "second", "ratio", "kernel", "program", box=None)
    for row in launches[:limit]:
        sign = "+" if row.lost > 0 else "-" if row.lost < 0 else ""
        ratio = f"{row.after / row.before:.2f}x" if row.before and row.after else ""
        times = ("none" if s is None else duration(s) for s in (row.before, row.after))
        shown.add_row(f"{sign}{duration(abs(row.lost))}", *times, ratio, row.name, row.title)
    console().print(shown)
    if launches[limit:]:
        typer.echo(f"... and {len(launches) - limit} more; --limit shows them")
