"""Bound programs that write each of their runs to the file of LUMINAL_TRACE.

A run is two readings of the clock and a line. Now and then one runs with clocks in it as well
(`Clocking`): that says what its launches took, on which thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any

from luminal.base.dtypes import DType
from luminal.base.trace_file import TraceFile
from luminal.runtime.arrays import Array
from luminal.runtime.clocks import Clocked, Clocking
from luminal.runtime.recognition import Familiar, Recognized, Recognizer, Recognizing
from luminal.runtime.report import Report, WorkMemory
from luminal.runtime.runner import AddressedRunner, BoundRunner, Runner, Times

RARELY = 64
"""From this run on every so many runs have clocks in them; before, those of powers of two."""


class Program:
    """A program with its dims, as lines of a trace: who it is, its runs, its memory."""

    def __init__(self, file: TraceFile, title: str, bound: BoundRunner, runner: Runner) -> None:
        self._file, self._title, self._bound, self._runner = file, title, bound, runner
        self._number = self._pid = 0
        self._runs = 0
        self._skipped, self._skipped_ns = 0, 0
        self._memory = WorkMemory()

    def has_clocks(self) -> bool:
        """Is the next run to have clocks in it? Not the first, which makes a program's memory."""
        runs = self._runs
        often = runs & (runs - 1) == 0 if runs < RARELY else runs % RARELY == 0
        return runs > 0 and often and runs % self._file.every == 0

    def ran(self, start: int, end: int, queued: bool = False) -> None:
        """A run took from one moment to the other; `queued`: to be given to a device, no more."""
        if self._pid != os.getpid():
            self._introduce()
        self._runs += 1
        if self._runs % self._file.every:
            self._skipped, self._skipped_ns = self._skipped + 1, self._skipped_ns + end - start
            return
        facts: dict[str, Any] = {"run": self._number, "at": start, "ns": end - start}
        if queued:
            facts["queued"] = True
        if self._skipped:
            facts |= {"skipped": self._skipped, "skipped_ns": self._skipped_ns}
            self._skipped = self._skipped_ns = 0
        self._file.write(**facts)
        self._remember()

    def clocked(self, start: int, told: Clocked) -> None:
        """A run with clocks in it began at this moment."""
        if self._pid != os.getpid():
            self._introduce()
        self._runs += 1
        tracks = [*dict.fromkeys(bar.track for bar in told.bars)]
        numbers = {track: number for number, track in enumerate(tracks)}
        self._file.write(
            clocked=self._number, at=start, ns=told.ended - start, called=told.called,
            returned=told.returned, whole=told.whole, tracks=tracks,
            bars=[
                [numbers[bar.track], bar.site, bar.trip, bar.start, bar.end - bar.start, bar.chunks]
                for bar in told.bars
            ],
        )  # fmt: skip
        self._remember()

    def _introduce(self) -> None:
        self._pid, self._number = os.getpid(), self._file.new_program()
        facts = self._bound.report().facts()
        self._file.write(
            program=self._number, title=self._title,
            **{name: facts[name] for name in ("dims", "kernels", "prologue", "dispatch")},
        )  # fmt: skip

    def _remember(self) -> None:
        memory = self._runner.memory()
        if memory != self._memory:
            self._memory = memory
            self._file.write(
                memory=self._number, arena=memory.arena_bytes, scratch=memory.scratch_bytes,
                derived=memory.derived_bytes, at=perf_counter_ns(),
            )  # fmt: skip


class Traced:
    """A bound program with its trace."""

    def __init__(self, bound: BoundRunner, program: Program) -> None:
        self._bound, self._program = bound, program
        self._clocking = bound if isinstance(bound, Clocking) else None

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Runs once, with clocks or without."""
        self._noted(self._bound.run, inputs, outputs)

    def seconds(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int = 1) -> float:
        """The seconds of runs that are not written."""
        return self._bound.seconds(inputs, outputs, runs)

    def profile(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int = 1) -> Times:
        """Runs that are not written."""
        return self._bound.profile(inputs, outputs, runs)

    def report(self) -> Report:
        """The launches of one run."""
        return self._bound.report()

    def _noted(
        self, run: Callable[..., None], inputs: Sequence[Any], outputs: Sequence[Any],
        at: bool = False,
    ) -> None:  # fmt: skip
        start = perf_counter_ns()
        if self._clocking is not None and self._program.has_clocks():
            told = self._clocking.clocked(inputs, outputs, at)
            self._program.clocked(start, told)
        else:
            run(inputs, outputs)
            self._program.ran(start, perf_counter_ns())


class TracedAt(Traced):
    """One that runs on memory by address, and on a device."""

    _bound: Any

    def run_at(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Runs once, with the addresses of the arrays."""
        self._noted(self._bound.run_at, inputs, outputs, at=True)

    def start(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], None]:
        """Queues a run on a device."""
        start = perf_counter_ns()
        wait: Callable[[], None] = self._bound.start(inputs, outputs)
        self._program.ran(start, perf_counter_ns(), queued=True)
        return wait

    def addressed(self, names: frozenset[str]) -> TracedAt:
        """The program for `run_at`, with arrays of these names on the device."""
        return TracedAt(self._bound.addressed(names), self._program)


class TracedFamiliar(TracedAt):
    """One whose backend recognizes calls."""

    def can_check(self, dtype: DType) -> bool:
        """Can elements of this dtype be compared with the extent that they index?"""
        return bool(self._bound.can_check(dtype))

    def recognizer(self, inputs: Sequence[Familiar], outputs: Sequence[Familiar]) -> Recognizer:
        """The Recognizer of calls with such arrays: a run that it recognizes is written too."""
        inner: Recognizer = self._bound.recognizer(inputs, outputs)

        def again(arrays: Mapping[Any, Any], outputs: Sequence[Array]) -> Recognized:
            used = inner.inputs(arrays)
            if used is not False:
                self.run(used, outputs)
            return used

        return Recognizer(inner.inputs, inner.outputs, again)


def with_trace(bound: BoundRunner, program: Program) -> BoundRunner:
    """The bound program, which writes its runs."""
    if isinstance(bound, Recognizing):
        return TracedFamiliar(bound, program)
    if isinstance(bound, AddressedRunner):
        return TracedAt(bound, program)
    return Traced(bound, program)
