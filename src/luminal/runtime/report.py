"""What an executable does and holds: its launches with their work, and its memory in bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from luminal.base.records import dataclass
from luminal.base.tracing import Span
from luminal.runtime import report_text
from luminal.runtime.roofline import MISSED, Bound, Peaks

JSON_FORMAT = 1
COLLECTIVE = -1
"""The number, in a row of a report, where ranks do something together and no kernel runs."""
LITTLE = 0.1  # of a run: so much beside the launches needs no word
CLOCK = 1e-6  # seconds that a clock and a wait may add to a launch


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One launch site of a run: a Loop's body appears once, with the trips of its Loops."""

    label: str
    kernel: int  # which of the program's distinct kernels; COLLECTIVE: none
    trips: int
    chunks: int  # of one launch
    flops: int  # of all trips
    bytes: int  # read and written, of all trips; of a collective, sent to other ranks
    seconds: float | None = None  # of all trips, where a profile was made
    origin: str = ""
    """Where what it computes was recorded: modules, operations and lines of the user."""
    lines: tuple[tuple[str, int], ...] = ()
    """The user's lines, as paths of files and numbers."""
    distinct: int | None = None
    """Of the bytes those in different places: what several trips touch counts once. None: all."""

    @property
    def name(self) -> str:
        """The words for the launch: where it comes from, or its operations where nobody knows."""
        return self.origin or self.label or f"k{self.kernel}"

    @property
    def is_collective(self) -> bool:
        """Is it something that ranks do together?"""
        return self.kernel == COLLECTIVE

    def limit(self, peaks: Peaks) -> tuple[Bound, float]:
        """The bound of the launch on this machine, and the least seconds it can take there."""
        return peaks.limit(self.flops, self.bytes, self.distinct)

    def roofline(self, peaks: Peaks | None) -> float | None:
        """The least time it can take over the time it takes; None without a profile or work, and
        where it seems to have taken less than it can.
        """
        if not self.seconds or peaks is None or not (self.flops or self.bytes):
            return None
        if self.is_collective:  # the machine's memory does not bound it
            return None
        return peaks.share(self.limit(peaks), self.seconds)

    def is_impossible(self, peaks: Peaks | None) -> bool:
        """Does the launch seem to have taken less time than it can?"""
        timed = self.seconds is not None and peaks is not None
        is_bounded = self.flops + self.bytes > 0 and not self.is_collective
        return timed and is_bounded and self.roofline(peaks) is None


class TaskTime(NamedTuple):
    """A task of a persistent kernel, as one group ran it: the launch that it stands for, the unit
    that the group is on, and seconds since the first of them. The group `came` to it, what it waits
    for was there when it `began`, and it `ended`.
    """

    task: int  # in the order of a run
    label: str
    kernel: int
    group: int
    unit: int
    came: float
    began: float
    ended: float
    origin: str = ""


class Rejected(NamedTuple):
    """Candidates that a search gave up for one reason, and one of them."""

    reason: str
    candidates: int
    example: str


class Best(NamedTuple):
    """A moment of a search: seconds since its start, candidates so far, the best one's time."""

    seconds: float
    candidates: int
    best_seconds: float


class RuleUse(NamedTuple):
    """What one rewrite rule did; `kind` is its class: exact, rounding or domain."""

    name: str
    kind: str
    matches: int
    new_nodes: int
    seconds: float


class Dispatched(NamedTuple):
    """A way of giving launches to a device, and the seconds of a run by it."""

    dispatch: str
    seconds: float


class LibraryPrice(NamedTuple):
    """The seconds of a run that a library takes for a kernel's product, and that our own kernel
    does, each at its fastest.
    """

    label: str
    library: str
    seconds: float
    own_seconds: float

    def __str__(self) -> str:
        seconds = self.seconds, self.own_seconds
        by_library, by_us = map(report_text.duration, seconds)
        gain = self.own_seconds / self.seconds if self.seconds else 1.0
        return (
            f"{self.label}: {self.library} {by_library}, our own kernel {by_us} ({gain:.2f}x by it)"
        )


class SideSummary(NamedTuple):
    """What one side of a search tried, and how long it took: the structure of programs (spellings,
    residences, merges), or the schedules of their kernels.
    """

    candidates: int = 0
    seconds: float = 0.0


NOTHING = SideSummary()


class Foresight(NamedTuple):
    """How well schedules of some kernels were ordered before they were timed: the mean rank
    correlation with the clock of what was predicted by counting, and of what was expected by what
    searches had learned. `known`: timings of the chip that this search began with.
    """

    schedules: int = 0
    kernels: int = 0
    predicted: float = 0.0
    expected: float = 0.0
    known: int = 0


UNSEEN = Foresight()


class Trial(NamedTuple):
    """A program that a search tried: when, of which side, what was changed in the best one so far.
    What a run took, and in turns with it one of the best (None: it was not timed); it was "kept",
    "slower" or "rejected", for a `reason`. Of a schedule that was "priced" these are the seconds of
    its kernel in a run, and those of the kernel as it was.
    """

    seconds: float
    side: str
    changed: str
    run_seconds: float | None
    best_seconds: float | None
    outcome: str
    reason: str = ""

    @property
    def gain(self) -> float | None:
        """How many times as fast it was as the best one so far."""
        if not self.run_seconds or self.best_seconds is None:
            return None
        return self.best_seconds / self.run_seconds


class Change(NamedTuple):
    """A choice of the program that runs which `fast` makes otherwise, in words; and by how much a
    run takes longer without it, with all else as it is (1.2: a fifth; None: that was not timed).
    """

    text: str
    without: float | None = None


@dataclass(frozen=True, slots=True)
class SearchSummary:
    """What a search tried and decided. Seconds of programs are those of one run. `candidates` are
    those of both sides. `dispatches`: the ways of giving the chosen program's launches to the
    device, the chosen one first; none where there is one. `libraries`: kernels that were timed both
    as our own and by a library. `trials`: the programs that were tried, in order; `genome`: the
    choices of the one that runs, as JSON; `changes`: those of them that change something.
    `from_database`: an earlier search did and decided all of this.
    """

    mode: str
    seed: int
    candidates: int
    kernels_built: int
    rejected: tuple[Rejected, ...]
    history: tuple[Best, ...]  # where the best time fell, and the end
    fast_seconds: float
    best_seconds: float
    decision: str  # "found 1.31x over fast", "nothing beat the fast program; it runs"
    rules: tuple[RuleUse, ...] = ()
    structure: SideSummary = NOTHING
    schedules: SideSummary = NOTHING
    from_database: bool = False
    interrupted: bool = False
    dispatches: tuple[Dispatched, ...] = ()
    libraries: tuple[LibraryPrice, ...] = ()
    foresight: Foresight = UNSEEN
    trials: tuple[Trial, ...] = ()
    genome: str = ""
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class CompileSummary:
    """What the compile of one program did: seconds by step (they add up), its search, and the
    steps with their beginnings.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    search: SearchSummary | None = None
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The launches of one run at `dims`; `prologue` runs only after a weight was set. `dispatch`:
    how a device is given them. `predicted`: seconds of a run by each way of that, where the chip is
    known. `tasks`: what each group of a persistent kernel did, in the last profile. `ranks`: those
    of all ranks of a mesh of this process, each with a title.

    `run_seconds`, `peaks` and the rows' seconds are there once `Executable.profile` was called.
    """

    dims: dict[str, int]
    kernels: tuple[KernelRow, ...]
    prologue: tuple[KernelRow, ...] = ()
    compiled: CompileSummary = field(default_factory=CompileSummary)
    run_seconds: float | None = None  # of a run without a clock in it
    peaks: Peaks | None = None
    dispatch: str | None = None
    tasks: tuple[TaskTime, ...] = ()
    predicted: Mapping[str, float] = field(default_factory=dict)
    ranks: tuple[tuple[str, Report], ...] = ()

    @property
    def flops(self) -> int:
        """Arithmetic operations of one run."""
        return sum(row.flops for row in self.kernels)

    @property
    def bytes(self) -> int:
        """Bytes that one run's kernels read and write."""
        return sum(row.bytes for row in self.kernels if not row.is_collective)

    @property
    def sent(self) -> int:
        """Bytes that one run's collectives send to other ranks, at least."""
        return sum(row.bytes for row in self.kernels if row.is_collective)

    @property
    def seconds(self) -> float | None:
        """The sum over the launches, where a profile was made."""
        taken = [row.seconds for row in self.kernels if row.seconds is not None]
        return sum(taken) if taken else None

    @property
    def compile_seconds(self) -> Mapping[str, float]:
        """The seconds that the compile spent in each step; they add up."""
        return self.compiled.seconds

    @property
    def search(self) -> SearchSummary | None:
        """What the search did, if there was one."""
        return self.compiled.search

    def share(self, row: KernelRow) -> float | None:
        """The row's part of the launches' time."""
        total = self.seconds
        return row.seconds / total if total and row.seconds is not None else None

    @property
    def doubts(self) -> list[str]:
        """The sentences that say what of a profile cannot be true as it was measured; mostly
        none.
        """
        sentences = []
        if self.adds_up_to_more:
            sentences.append(
                "the launches, timed one by one, add up to more than a run takes: their shares "
                "may be used, their times may not; profile again on a quieter machine"
            )
        names = [row.name for row in self.kernels if row.is_impossible(self.peaks)]
        if names:
            sentences.append(
                f"{', '.join(dict.fromkeys(names))}: less time than the counted work can take on "
                "this machine, so no share of the roofline is given: a launch may skip some of "
                "that work (masked blocks), or its time is wrong"
            )
        return sentences

    @property
    def gap(self) -> str:
        """What a run takes beside its launches, in words; "" where that is little."""
        if self.seconds is None or self.run_seconds is None:
            return ""
        left = self.run_seconds - self.seconds
        count = sum(row.trips for row in self.kernels)
        if left < max(LITTLE * self.run_seconds, CLOCK * count):
            return ""
        said = f"{report_text.duration(left)} of {report_text.duration(self.run_seconds)}"
        where = (
            "giving the device its launches and waiting for it"
            if self.dispatch
            else "waking the threads, their meetings between launches and the call itself"
        )
        return (
            f"{said} are no launch's: {where}; {report_text.duration(left / max(count, 1))} for "
            f"each of {report_text.launches(count)}. Other programs on the machine make that more"
        )

    @property
    def adds_up_to_more(self) -> bool:
        """Do the launches' times add up to more than a run, beyond what the clocks take?"""
        if self.seconds is None or self.run_seconds is None:
            return False
        clocks = CLOCK * sum(row.trips for row in self.kernels)
        return self.seconds > MISSED * self.run_seconds + clocks

    def timed(
        self,
        seconds: Sequence[float],
        run_seconds: float,
        peaks: Peaks | None,
        tasks: tuple[TaskTime, ...] = (),
    ) -> Report:
        """The report with each launch's seconds; the peaks are none below what a launch reached."""
        rows = zip(self.kernels, seconds, strict=True)
        kernels = tuple(replace(row, seconds=taken) for row, taken in rows)
        if peaks is not None:
            # Before shares are told: a launch that was a little faster than the measured peak has
            # measured a better one.
            peaks = peaks.reached_by(kernels)
        return replace(self, kernels=kernels, run_seconds=run_seconds, peaks=peaks, tasks=tasks)

    def __str__(self) -> str:
        return report_text.text(self)

    def _repr_html_(self) -> str:
        return report_text.notebook(self)

    def to_json(self) -> str:
        """The report as JSON; docs/inspecting.md lists the keys."""
        return json.dumps(self.facts(), indent=2)

    def trace(self, path: str | Path | None = None) -> str:
        """The tasks of persistent kernels as a trace that Perfetto and chrome://tracing show: JSON
        of the trace event format, written to `path` if given.
        """
        from luminal.runtime import task_trace  # late: few reports have tasks

        events = task_trace.events(self.tasks)
        if path is not None:
            Path(path).write_text(events, encoding="utf-8")
        return events

    def facts(self) -> dict[str, Any]:
        """What `to_json` writes, as Python has it."""
        return {
            "format": JSON_FORMAT,
            "dims": self.dims,
            "flops": self.flops,
            "bytes": self.bytes,
            "run_seconds": self.run_seconds,
            "peaks": None if self.peaks is None else self.peaks._asdict(),
            "kernels": [self._row_facts(row) for row in self.kernels],
            "prologue": [self._row_facts(row) for row in self.prologue],
            "compile_seconds": dict(self.compile_seconds),
            "search": None if self.search is None else search_facts(self.search),
            "doubts": self.doubts,
            "gap": self.gap,
            "dispatch": self.dispatch,
            "predicted": dict(self.predicted),
            "tasks": [row._asdict() for row in self.tasks],
        }

    def _row_facts(self, row: KernelRow) -> dict[str, Any]:
        return {
            **_fields(row),
            "share": self.share(row),
            "bound": None if self.peaks is None else row.limit(self.peaks)[0],
            "roofline": row.roofline(self.peaks),
        }


@dataclass(frozen=True, slots=True)
class WorkMemory:
    """Memory that a backend's runner holds, in bytes."""

    derived_bytes: int = 0
    arena_bytes: int = 0
    scratch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What an executable holds or uses, in bytes. Inputs are borrowed, weights, States shared."""

    input_bytes: int
    weight_bytes: int
    derived_bytes: int
    state_bytes: int
    arena_bytes: int
    scratch_bytes: int
    output_pool_bytes: int

    @property
    def total_bytes(self) -> int:
        """The sum of the parts."""
        return sum(_fields(self).values())

    def facts(self) -> dict[str, int]:
        """The parts by name."""
        return _fields(self)

    def __str__(self) -> str:
        rows = [(name.removesuffix("_bytes"), f"{n:,}") for name, n in _fields(self).items()]
        total = ("total", f"{self.total_bytes:,}")
        return "\n".join(report_text.table_lines([("memory", "bytes"), *rows, total]))


_RECORDS: Mapping[str, type[Any]] = {
    "structure": SideSummary, "schedules": SideSummary, "foresight": Foresight,
}  # fmt: skip
_ROWS: Mapping[str, type[Any]] = {
    "rejected": Rejected, "history": Best, "rules": RuleUse, "dispatches": Dispatched,
    "libraries": LibraryPrice, "trials": Trial, "changes": Change,
}  # fmt: skip
"""The records in a SearchSummary, alone and in tuples."""


def search_facts(search: SearchSummary) -> dict[str, Any]:
    """A search as the report's JSON has it."""
    facts = _fields(search)
    facts |= {name: facts[name]._asdict() for name in _RECORDS}
    return facts | {name: [row._asdict() for row in facts[name]] for name in _ROWS}


def search_of(facts: Mapping[str, Any]) -> SearchSummary:
    """The search of which `search_facts` made these. Raises KeyError, TypeError or AttributeError
    for others.
    """
    read = {entry.name: facts[entry.name] for entry in fields(SearchSummary)}
    read |= {name: kind(**read[name]) for name, kind in _RECORDS.items()}
    read |= {name: tuple(kind(**row) for row in read[name]) for name, kind in _ROWS.items()}
    return SearchSummary(**read)


def _fields(record: Any) -> dict[str, Any]:
    return {entry.name: getattr(record, entry.name) for entry in fields(record)}
