"""What a file of LUMINAL_TRACE tells (`base/trace_file.py` writes it): `read` makes records of it.

Times are seconds since the first process of the file began. A process that was killed leaves spans
without an end and perhaps half a line: the spans end with the last thing it wrote, the half line is
left out, and `Trace.doubts` says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.base.trace_file import FORMAT
from luminal.runtime.report import KernelRow, Report
from luminal.runtime.roofline import Peaks

NANO = 1e-9
LINES_SHOWN = 3  # numbers of lines that a doubt lists


@dataclass(slots=True)
class Process:
    """A process of a trace; `start` in seconds since the first, `threads` names by number."""

    pid: int
    parent: int
    command: list[str]
    host: str
    luminal: str
    start: float
    end: float
    threads: dict[int, str] = field(default_factory=dict)
    clock: int = 0  # of this process, in nanoseconds, where the trace's seconds are 0
    rank: str = ""  # "rank 1 of 4"; "" for a process that is none


class Span(NamedTuple):
    """A step of a compile or a search on a thread. Not `ended`: the process was killed in it.

    `outcome`: of a candidate, why it was given up, or that it is the best so far.
    """

    process: Process
    thread: int
    name: str
    depth: int
    start: float
    end: float
    ended: bool = True
    outcome: str = ""


class Run(NamedTuple):
    """A run of a program; of one that was `queued` on a device the seconds until that was done."""

    thread: int
    start: float
    seconds: float
    queued: bool = False


class Track(NamedTuple):
    """A bar of a clocked run, in seconds; it is of that thread's, stream's or group's."""

    track: str
    site: int
    trip: int
    start: float
    end: float
    chunks: int


class Parts(NamedTuple):
    """Where the seconds of a run with clocks went: weights and addresses, waking threads (queueing
    and copying, on a device), the launches with their waits, what came after the last of them.
    `waiting`: of the launches' part, the mean of the tracks' time without work.
    """

    preparing: float
    starting: float
    launches: float
    ending: float
    waiting: float

    @property
    def whole(self) -> float:
        """The seconds of the run."""
        return self.preparing + self.starting + self.launches + self.ending


class ClockedRun(NamedTuple):
    """A run with clocks: the native code was entered and left at these seconds."""

    thread: int
    start: float
    end: float
    called: float
    returned: float
    whole: bool
    bars: tuple[Track, ...]

    def seconds(self, sites: int) -> list[float]:
        """The seconds of each launch site, all trips: how far the end of all work moved on by it.
        They add up to the time from the first bar to the end of the last.
        """
        ends: dict[tuple[int, int], float] = {}
        starts: dict[tuple[int, int], float] = {}
        for bar in self.bars:
            key = bar.trip, bar.site
            starts[key] = min(bar.start, starts.get(key, bar.start))
            ends[key] = max(bar.end, ends.get(key, bar.end))
        taken = [0.0] * sites
        reached = min(starts.values(), default=0.0)
        for key in sorted(starts, key=lambda key: starts[key]):
            taken[key[1]] += max(ends[key] - reached, 0.0)
            reached = max(reached, ends[key])
        return taken

    @property
    def parts(self) -> Parts:
        """Where its seconds went; a run without bars has only the first and the second."""
        if not self.bars:
            taken = self.end - self.start
            return Parts(self.called - self.start, taken - self.called + self.start, 0.0, 0.0, 0.0)
        first, last = min(b.start for b in self.bars), max(b.end for b in self.bars)
        tracks = len({bar.track for bar in self.bars})
        work = sum(bar.end - bar.start for bar in self.bars)
        return Parts(
            self.called - self.start, first - self.called, last - first, self.end - last,
            max(last - first - work / tracks, 0.0),
        )  # fmt: skip


@dataclass(slots=True)
class Memory:
    """Bytes that a program held from a moment on."""

    at: float
    arena: int
    scratch: int
    derived: int


@dataclass(slots=True)
class Program:
    """A program at some dims, with its runs; those between noted ones are counted in `skipped`."""

    process: Process
    number: int
    title: str
    dims: dict[str, int]
    kernels: tuple[KernelRow, ...]
    prologue: tuple[KernelRow, ...]
    dispatch: str | None
    runs: list[Run] = field(default_factory=list)
    clocked: list[ClockedRun] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    skipped: int = 0
    skipped_seconds: float = 0.0

    @property
    def count(self) -> int:
        """The number of all its runs."""
        return len(self.runs) + len(self.clocked) + self.skipped

    @property
    def total_seconds(self) -> float:
        """The seconds of all its runs."""
        clocked = sum(run.end - run.start for run in self.clocked)
        return sum(run.seconds for run in self.runs) + clocked + self.skipped_seconds

    @property
    def run_seconds(self) -> float | None:
        """The median of runs without clocks but the first, which makes memory; None for none."""
        taken = [run.seconds for run in self.runs if not run.queued]
        return median(taken[1:] or taken) if taken else None

    @property
    def parts(self) -> Parts | None:
        """The medians of where runs with clocks spent their time."""
        if not self.clocked:
            return None
        return Parts(*map(median, zip(*(run.parts for run in self.clocked), strict=True)))

    def report(self, peaks: Peaks | None = None) -> Report:
        """The launches with the medians of their seconds, where there were runs with clocks."""
        report = Report(self.dims, self.kernels, self.prologue, dispatch=self.dispatch)
        if not self.clocked:
            return replace(report, run_seconds=self.run_seconds, peaks=peaks)
        by_site = zip(*(run.seconds(len(self.kernels)) for run in self.clocked), strict=True)
        taken = self.run_seconds
        if taken is None:
            taken = median(run.end - run.start for run in self.clocked)
        return report.timed([median(seconds) for seconds in by_site], taken, peaks)


@dataclass(slots=True)
class Trace:
    """A whole file. `doubts`: sentences about what of it is missing."""

    processes: list[Process] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """From the first moment to the last."""
        return max((process.end for process in self.processes), default=0.0)


def read(*paths: str | Path) -> Trace:
    """The trace of a file, or of several as one, as ranks on several machines write them: their
    clocks are those of the machines. Raises InputError for a file that cannot be read, or is none.
    """
    files = [(path, _lines(path)) for path in paths]
    # The first process of all is where the seconds begin.
    files.sort(key=lambda file: (_facts(file[1][0]) or {}).get("wall", 0))
    trace = Trace()
    wall = 0
    for path, lines in files:
        reader = _Reader(path, trace, wall, f"{path}: " if len(files) > 1 else "")
        reader.take_all(lines)
        wall = reader.wall
    trace.spans.sort(key=lambda span: (span.start, span.depth))
    return trace


def _lines(path: str | Path) -> list[bytes]:
    """The lines of a trace's file; the last one is what follows the last newline."""
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if len(lines) == 1:
        raise InputError(f"{path}: no trace: it has no line; LUMINAL_TRACE=FILE writes one")
    if "format" not in (_facts(lines[0]) or {}):
        raise InputError(
            f"{path}: no trace: its first line is not that of a process; "
            "LUMINAL_TRACE=FILE python ... writes one"
        )
    return lines


def _facts(line: bytes) -> dict[str, Any] | None:
    try:
        facts = json.loads(line)
    except ValueError:
        return None
    return facts if isinstance(facts, dict) and isinstance(facts.get("pid"), int) else None


class _Reader:
    """Takes the lines of a file in their order into a trace, whose seconds are 0 at `wall`."""

    def __init__(self, path: str | Path, trace: Trace, wall: int, of: str) -> None:
        self.trace, self.wall = trace, wall
        self._path, self._file = path, of
        self._processes: dict[int, Process] = {}
        self._programs: dict[tuple[int, int], Program] = {}
        self._open: dict[tuple[int, int], list[tuple[str, int, str]]] = {}
        self._kinds = {
            "format": self._process, "name": self._thread, "begin": self._begin, "end": self._end,
            "program": self._program, "run": self._run, "clocked": self._clocked,
            "memory": self._memory, "rejected": self._rejected, "best": self._best,
            "full": self._full,
        }  # fmt: skip

    def take_all(self, lines: list[bytes]) -> None:
        """Takes all of a file, and says in `doubts` what of it is missing."""
        bad = []
        *lines, last = lines
        for number, line in enumerate(lines, 1):
            facts = _facts(line)
            if facts is None or not self.take(facts):
                bad.append(number)
        if last:
            self._doubt("the last line is half of one: its process was killed")
        if bad:
            shown = ", ".join(map(str, bad[:LINES_SHOWN])) + (", ..." if bad[LINES_SHOWN:] else "")
            self._doubt(f"lines that no trace has were left out: {shown}")
        self._end_spans()

    def _doubt(self, sentence: str) -> None:
        self.trace.doubts.append(self._file + sentence)

    def take(self, facts: dict[str, Any]) -> bool:
        """Takes a line; False for one that is none of a trace."""
        kind = next((kind for kind in self._kinds if kind in facts), None)
        process = self._processes.get(facts["pid"])
        if kind is None or (process is None and kind != "format"):
            return False
        try:
            self._kinds[kind](facts)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError):
            return False
        if process is not None and isinstance(facts.get("at"), int):
            ended = facts["at"] + facts.get("ns", 0)
            process.end = max(process.end, self._seconds(process, ended))
        return True

    def _end_spans(self) -> None:
        """Spans that nobody ended end with the last thing that their process wrote."""
        cut = []
        for (pid, thread), begun in self._open.items():
            for depth, (name, at, outcome) in enumerate(begun):
                process = self._processes[pid]
                start = self._seconds(process, at)
                cut.append(name)
                self.trace.spans.append(
                    Span(process, thread, name, depth, start, process.end, False, outcome)
                )
        if cut:
            self._doubt(f"a process was killed within: {', '.join(cut)}")

    def _seconds(self, process: Process, at: int) -> float:
        return (at - process.clock) * NANO

    def _process(self, facts: dict[str, Any]) -> None:
        if facts["format"] != FORMAT:
            raise InputError(
                f"{self._path}: a trace of format {facts['format']}, and this Luminal reads "
                f"{FORMAT}; use the version that wrote it ({facts.get('luminal')})"
            )
        self.wall = self.wall or facts["wall"]
        clock = facts["clock"] - (facts["wall"] - self.wall)
        start = (facts["clock"] - clock) * NANO
        process = Process(
            facts["pid"], facts["parent"], facts["command"], facts["host"], facts["luminal"],
            start, start, clock=clock, rank=facts.get("rank", ""),
        )  # fmt: skip
        self._processes[process.pid] = process
        self.trace.processes.append(process)

    def _thread(self, facts: dict[str, Any]) -> None:
        self._processes[facts["pid"]].threads[facts["thread"]] = facts["name"]

    def _begin(self, facts: dict[str, Any]) -> None:
        begun = self._open.setdefault((facts["pid"], facts["thread"]), [])
        begun.append((facts["begin"], facts["at"], ""))

    def _end(self, facts: dict[str, Any]) -> None:
        begun = self._open.get((facts["pid"], facts["thread"]), [])
        # What raised through a candidate ends with what is around it.
        while begun:
            name, at, outcome = begun.pop()
            process = self._processes[facts["pid"]]
            start, end = self._seconds(process, at), self._seconds(process, facts["at"])
            span = Span(process, facts["thread"], name, len(begun), start, end, True, outcome)
            self.trace.spans.append(span)
            if name == facts["end"]:
                return
        raise ValueError(facts["end"])

    def _rejected(self, facts: dict[str, Any]) -> None:
        self._outcome(facts, f"given up: {facts['rejected']}")

    def _best(self, facts: dict[str, Any]) -> None:
        self._outcome(facts, f"best so far: {facts['best'] * 1e6:,.2f} us")

    def _outcome(self, facts: dict[str, Any], outcome: str) -> None:
        begun = self._open.get((facts["pid"], facts["thread"]), [])
        if begun and begun[-1][0].startswith("candidate: "):
            begun[-1] = (*begun[-1][:2], outcome)

    def _program(self, facts: dict[str, Any]) -> None:
        program = Program(
            self._processes[facts["pid"]], facts["program"], facts["title"], facts["dims"],
            tuple(map(_row, facts["kernels"])), tuple(map(_row, facts["prologue"])),
            facts["dispatch"],
        )  # fmt: skip
        self._programs[facts["pid"], program.number] = program
        self.trace.programs.append(program)

    def _of(self, facts: dict[str, Any], kind: str) -> tuple[Process, Program]:
        """The process of a line and its program."""
        process = self._processes[facts["pid"]]
        return process, self._programs[facts["pid"], facts[kind]]

    def _run(self, facts: dict[str, Any]) -> None:
        process, program = self._of(facts, "run")
        start, queued = self._seconds(process, facts["at"]), bool(facts.get("queued"))
        program.runs.append(Run(facts["thread"], start, facts["ns"] * NANO, queued))
        program.skipped += facts.get("skipped", 0)
        program.skipped_seconds += facts.get("skipped_ns", 0) * NANO

    def _clocked(self, facts: dict[str, Any]) -> None:
        process, program = self._of(facts, "clocked")
        sites, tracks = len(program.kernels), facts["tracks"]
        bars = []
        for number, site, trip, start, taken, chunks in facts["bars"]:
            if not 0 <= site < sites:
                raise ValueError(site)
            ends = self._seconds(process, start), self._seconds(process, start + taken)
            bars.append(Track(tracks[number], site, trip, *ends, chunks))
        start, called, returned = (
            self._seconds(process, facts[name]) for name in ("at", "called", "returned")
        )
        end = start + facts["ns"] * NANO
        run = ClockedRun(facts["thread"], start, end, called, returned, facts["whole"], tuple(bars))
        program.clocked.append(run)

    def _memory(self, facts: dict[str, Any]) -> None:
        process, program = self._of(facts, "memory")
        at = self._seconds(process, facts["at"])
        program.memory.append(Memory(at, facts["arena"], facts["scratch"], facts["derived"]))

    def _full(self, facts: dict[str, Any]) -> None:
        self._doubt(f"process {facts['pid']} wrote {facts['full']:,} bytes, the limit, and no more")


def _row(facts: Mapping[str, Any]) -> KernelRow:
    lines = tuple((file, number) for file, number in facts["lines"])
    return KernelRow(
        facts["label"], facts["kernel"], facts["trips"], facts["chunks"], facts["flops"],
        facts["bytes"], origin=facts["origin"], lines=lines, distinct=facts.get("distinct"),
    )  # fmt: skip
