"""What a search has seen so far: candidates, rejections, the best time's history."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from luminal.base import config, trace_file
from luminal.runtime.report import UNSEEN, Best, Foresight, Rejected, SideSummary, Trial
from luminal.search.learned import correlation

FORESEEN = 5  # schedules of a kernel: the order of fewer says nothing
MOST_TRIALS = 2000  # that are remembered: the first ones, which gain most
STRUCTURE, SCHEDULES = "structure", "schedules"  # the sides of a search: they share its budget


class Log:
    """The record of one search; with `progress` a bar on stderr shows it."""

    def __init__(self, progress: bool | None, limit_seconds: float | None, most: int) -> None:
        self.start = time.monotonic()
        self._trace = trace_file.current()
        self.tried_by = dict.fromkeys((STRUCTURE, SCHEDULES), 0)
        self.seconds_of = dict.fromkeys((STRUCTURE, SCHEDULES), 0.0)
        self.kernels_built = 0
        self.history: list[Best] = []
        self.trials: list[Trial] = []
        self._foreseen: dict[str, list[tuple[float, float, float]]] = {}
        self._rejected: dict[str, tuple[int, str]] = {}
        self._limit = limit_seconds
        self._most = most
        at_terminal = sys.stderr is not None and sys.stderr.isatty()  # None: it is closed
        self._bar = _bar() if (at_terminal if progress is None else progress) else None
        self._task = None if self._bar is None else self._bar.add_task("search", total=1.0)
        if self._bar is not None:
            self._bar.start()

    @property
    def seconds(self) -> float:
        """The seconds since the start of the search."""
        return time.monotonic() - self.start

    @property
    def candidates(self) -> int:
        """The number of candidates that were timed."""
        return sum(self.tried_by.values())

    @contextmanager
    def trying(self, note: str) -> Iterator[None]:
        """The block times a candidate."""
        if self._trace is not None:
            self._trace.write(begin=f"candidate: {note}", at=time.perf_counter_ns())
        yield
        if self._trace is not None:
            self._trace.write(end=f"candidate: {note}", at=time.perf_counter_ns())

    def tried(self, side: str, count: int = 1) -> None:
        """So many more candidates of a side were timed."""
        self.tried_by[side] += count
        self._show()

    def side(self, side: str) -> SideSummary:
        """A summary of what a side got so far."""
        return SideSummary(self.tried_by[side], self.seconds_of[side])

    def reject(self, reason: str, example: str) -> None:
        """A candidate was given up; `reason` in words that many share."""
        count, first = self._rejected.get(reason, (0, example))
        self._rejected[reason] = count + 1, first
        if self._trace is not None:
            self._trace.write(rejected=reason, example=example, at=time.perf_counter_ns())
        if config.get("LUMINAL_PRINT_REJECT"):
            print(f"rejected: {reason}: {example}", file=sys.stderr)
        self._show()

    def trial(
        self, side: str, changed: str, outcome: str, reason: str = "",
        seconds: float | None = None, best: float | None = None,
    ) -> None:  # fmt: skip
        """What came of a program; `seconds` of a run, and of one of the best in turns with it."""
        if len(self.trials) < MOST_TRIALS:
            self.trials.append(Trial(self.seconds, side, changed, seconds, best, outcome, reason))

    def foreseen(self, kernel: str, predicted: float, expected: float, seconds: float) -> None:
        """A schedule of a kernel took so long: what was predicted, and what was expected by what
        had been learned before it was timed.
        """
        self._foreseen.setdefault(kernel, []).append((predicted, expected, seconds))

    def orders(self) -> Foresight:
        """How well schedules were ordered before they were timed, in the mean of the kernels of
        which enough were.
        """
        rows = [[*zip(*f, strict=True)] for f in self._foreseen.values() if len(f) >= FORESEEN]
        correlations = [(correlation(p, s), correlation(e, s)) for p, e, s in rows]
        timed = sum(len(seconds) for _, _, seconds in rows)
        return (
            Foresight(timed, len(rows), *np.mean(correlations, axis=0).tolist())
            if correlations
            else UNSEEN
        )

    def best(self, seconds: float) -> None:
        """The fastest program so far takes so long."""
        self.history.append(Best(self.seconds, self.candidates, seconds))
        if self._trace is not None:
            told = {"best": seconds, "candidates": self.candidates}
            self._trace.write(**told, at=time.perf_counter_ns())
        self._show()

    def rejected(self) -> tuple[Rejected, ...]:
        """All rejections by reason, the most frequent first."""
        rows = (Rejected(reason, n, text) for reason, (n, text) in self._rejected.items())
        return tuple(sorted(rows, key=lambda row: (-row.candidates, row.reason)))

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _show(self) -> None:
        if self._bar is None or self._task is None:
            return
        done = self.candidates / self._most
        if self._limit is not None:
            done = max(done, self.seconds / self._limit)
        best = f"{self.history[-1].best_seconds * 1e6:,.1f} us" if self.history else "-"
        rejections = sum(count for count, _ in self._rejected.values())
        text = f"best {best}  {self.candidates} candidates  {rejections} rejected"
        self._bar.update(self._task, completed=min(1.0, done), description=text)


def _bar() -> Progress:
    columns: Iterable[TextColumn | BarColumn | TimeElapsedColumn] = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)
