"""What ranks keep between steps, so that others go on from it: under `luminal launch --restarts`.

A snapshot is a checkpoint in the folder of the program's membership, which lies in memory: each
rank writes its part of what is cut, and any number of ranks reads it. It is whole or not there
however ranks end, and steps follow from it alone, so a run that goes on from an older one takes the
same steps again, and not every step needs one.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from luminal.base.errors import InputError
from luminal.runtime.collectives import membership
from luminal.runtime.collectives.engine import Engine
from luminal.runtime.collectives.membership import Fits, Membership
from luminal.runtime.collectives.process import init
from luminal.training.checkpoint import Checkpoint, CheckpointManager
from luminal.training.ranks import Ranks

EVERY = 20.0
"""Steps between snapshots take so many times as long as one, so they cost 5% of a run at most."""

_runs: WeakKeyDictionary[Engine, int] = WeakKeyDictionary()
"""How many runs the program has begun: each finds its snapshots by its number."""


class Snapshots:
    """The snapshots of one run of a program whose ranks may change."""

    def __init__(self, member: Membership, ranks: Ranks) -> None:
        engine = init()
        number = _runs[engine] = _runs.get(engine, 0) + 1
        self._member, self._ranks = member, ranks
        self._manager = CheckpointManager(member.folder / f"run-{number}", 1, 0)
        self.log = self._manager.folder / "rows.jsonl"
        """Where rows are kept that nobody else keeps."""
        self._due = 0.0

    @staticmethod
    def of(ranks: Ranks) -> Snapshots | None:
        """The snapshots of the next run of all ranks; None where the number of ranks stays."""
        member = membership.current()
        if member is None or ranks.size != init().size:  # each trains something by itself
            return None
        return Snapshots(member, ranks)

    def restore(self) -> Checkpoint | None:
        """The newest snapshot, if there is one; all ranks must ask."""
        return self._manager.restore(engine=self._ranks.together)

    def step_ended(self, step: int, state: Callable[[], Any], *, is_last: bool) -> None:
        """Takes a snapshot where one is due, after the last step, and where ranks are to change:
        then the program ends by SystemExit, to be started again. All ranks must ask after each
        step.
        """
        told = time.monotonic() >= self._due, self._member.is_change_wanted
        is_due, stops = self._ranks.agreed(told, "shall ranks change, or take a snapshot")
        stops = stops and not is_last
        if not (is_due or is_last or stops):
            return
        begun = time.monotonic()
        try:
            self._manager.save(step, state(), engine=self._ranks.together)
        except InputError as error:
            if self._ranks.is_first:
                warnings.warn(f"{error}, or give luminal launch --snapshots FOLDER", stacklevel=2)
        ended = time.monotonic()
        self._due = ended + EVERY * (ended - begun)
        if stops:
            _stop(self._member, self._ranks)


def check_count(ranks: Ranks, rows: int) -> None:
    """Tells who has launched this program which numbers of ranks a training can have whose batches
    fall into `rows` parts at most. Where the present one is none of them the program ends by
    SystemExit, to be started again with one that is.
    """
    member = membership.current()
    if member is None or ranks.size != init().size or not ranks.axes:
        return
    fits = Fits(rows, ranks.size // ranks.parts)
    if ranks.is_first:
        member.tell_fits(fits)
    if not fits.takes(ranks.size):
        _stop(member, ranks)


def _stop(member: Membership, ranks: Ranks) -> None:
    if ranks.is_first:
        member.stop()
    raise SystemExit(0)
