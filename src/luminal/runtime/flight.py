"""Runs that are queued on a device and that nobody has waited for yet, in the queue's order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from luminal.base.errors import LuminalError
from luminal.memory.state import Assignable
from luminal.runtime.driver import Driver, Mark

if TYPE_CHECKING:
    from luminal.runtime.device_watch import Watch

MOST = 4
"""Runs of a device in flight. Two keep it busy; each holds memory of the host for what it takes."""


class Moved(NamedTuple):
    """A State whose value a run put into another buffer."""

    state: Assignable
    old: Any
    new: Any


class Queued:
    """A run in flight. `land` gives the caller what it computed, once it is over.

    `mark` stands behind it in the queue; None where nothing else is queued there. `overwritten` are
    the buffers that it writes where they lie, `moved` the States that it gives another buffer,
    `kept` the arrays that it leaves on the device. `watch` waits for a run with collectives.
    """

    __slots__ = ("error", "is_over", "kept", "land", "mark", "moved", "overwritten", "watch")

    def __init__(
        self,
        land: Callable[[], None],
        mark: Mark | None,
        overwritten: Sequence[Any],
        moved: Sequence[Moved],
        kept: Sequence[Any],
        watch: Watch | None = None,
    ) -> None:
        self.kept = kept
        self.land = land
        self.mark = mark
        self.overwritten, self.moved = overwritten, moved
        self.error: LuminalError | None = None
        self.is_over = False
        self.watch = watch

    def wait(self, driver: Driver) -> None:
        """Waits until the device has done it. Raises what has gone wrong there."""
        if self.watch is None:
            driver.wait(self.mark)
        else:
            self.watch.wait(driver, self.mark)

    def check(self) -> None:
        """Raises what went wrong with it."""
        if self.error is not None:
            raise self.error


# States change hands when a run is queued, not when it ends: the next run is queued with them, and
# the queue keeps the order. So a failure has to say, later, which of them have a value.
class Flight:
    """All of one device, whose lock is held by who calls."""

    def __init__(self) -> None:
        self._runs: deque[Queued] = deque()

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: Queued) -> None:
        """Takes a run that was queued just now."""
        self._runs.append(run)

    def settle(
        self, driver: Driver, run: Queued | None = None, most: int = 0
    ) -> LuminalError | None:
        """Waits in the queue's order until a run is over, or all but `most` are: what went wrong.
        A run that fails takes with it those behind it, which go on from what it left.
        """
        while len(self._runs) > most and not (run is not None and run.is_over):
            first = self._runs[0]
            try:
                first.wait(driver)
            except LuminalError as error:
                if first.watch is None:
                    error.add_note("LUMINAL_SYNC=1 in the environment names the launch that failed")
                self.fail(error)
                return error
            self._runs.popleft()
            first.is_over = True
            first.land()
        return None

    def fail(self, error: LuminalError) -> None:
        """Ends all runs in flight. A State whose old value no run has touched has it again; those
        that may be half old and half new have no value until they are set.
        """
        runs, self._runs = [*self._runs], deque()
        written = {id(buffer) for run in runs for buffer in run.overwritten}
        written |= {id(moved.new) for run in runs for moved in run.moved}
        old_of: dict[Assignable, Any] = {}
        for run in runs:
            run.is_over, run.error = True, error
            for array in run.kept:
                array.error = error
            for buffer in run.overwritten:
                buffer.is_whole = False
            for state, old, new in run.moved:
                new.is_whole = False
                old_of.setdefault(state, old)
        for state, old in old_of.items():
            if id(old) not in written and id(state.buffer) in written:
                state.buffer, state.spare = old, state.buffer
