"""Collectives on the CPU: native code calls back, on the thread that runs the program.

A collective's launch is a row of the launch list like that of a kernel in Python: serial, with a
callback for its code. The other members of the team pass it by, up to the next barrier.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping

from luminal.backends.cpu.hand_written import PROTOTYPE, PythonCalls, array_at
from luminal.base.dtypes import uint8
from luminal.hlir.stand_in import stand_in
from luminal.program.launch_list import CollectiveLaunch
from luminal.runtime.arrays import Array
from luminal.runtime.on_ranks import Ranks
from luminal.runtime.ranks import Engine, request

MOST_VIEWS = 64  # pairs of arrays that a collective knows; where inputs move, the oldest go


class CollectiveCode:
    """What a launch of a collective does, under a native address for as long as this object is
    referenced.
    """

    def __init__(self, launch: CollectiveLaunch, ranks: Ranks, calls: PythonCalls) -> None:
        self._launch, self._ranks, self._calls = launch, ranks, calls
        attrs = launch.attrs
        self._dtype = launch.dtype if attrs.reduction else uint8
        self._unit = launch.dtype.size // self._dtype.size
        self._how = request(attrs, launch.label)
        self._words = ctypes.c_uint64 * (2 * launch.members)
        self._views: dict[tuple[int, ...], tuple[Array, Array]] = {}
        self._function = PROTOTYPE(self._run)
        self.address: int = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def _run(self, slots: int, dims: int, begin: int, end: int, scratch: int | None) -> None:
        """Starts the collective, or waits for it, or both. Nothing may leave a callback: native
        code knows no exceptions.
        """
        try:
            words = self._words
            key = (*words.from_address(slots), *words.from_address(dims))
            views = self._views.get(key)
            if views is None:
                views = self._viewed(key)
            if self._ranks.is_alone:
                self._copy(*views)
            else:
                self._move(*views)
            self._calls.finished += 1
        except BaseException as failure:
            failure.add_note(
                f"in {self._launch.title}; States of this rank may have changed: load them again"
            )
            self._calls.stop(failure)

    def _move(self, source: Array, target: Array) -> None:
        launch, ranks = self._launch, self._ranks
        attrs = launch.attrs
        engine: Engine = ranks.engines[attrs.axis]
        if launch.phase == "wait":
            ticket = ranks.tickets.pop(launch.ticket)
        else:
            ticket = engine.start(attrs.kind, source, target, **self._how)
        if launch.phase == "start":
            ranks.tickets[launch.ticket] = ticket
        else:
            engine.wait(ticket, first=ranks.is_first)

    def _copy(self, source: Array, target: Array) -> None:
        if self._launch.phase != "wait":
            target[...] = stand_in(self._launch.attrs, source)

    def _viewed(self, key: tuple[int, ...]) -> tuple[Array, Array]:
        """The arrays at these addresses, of so many elements: `key` has the ones, then the others.
        Those of a bucket lie side by side: one array reaches over all of them.
        """
        members, size = self._launch.members, self._dtype.size
        pointers, sizes = key[: 2 * members], key[2 * members :]
        source, target = (
            array_at(first, ((last - first) // size + elements * self._unit,), self._dtype)
            for first, last, elements in (
                (pointers[half], pointers[half + members - 1], sizes[half + members - 1])
                for half in (0, members)
            )
        )
        if len(self._views) >= MOST_VIEWS:
            del self._views[next(iter(self._views))]
        self._views[key] = views = source, target
        return views


def codes(
    launches: Iterable[CollectiveLaunch], ranks: Ranks, calls: PythonCalls
) -> Mapping[CollectiveLaunch, CollectiveCode]:
    """The code of each launch; equal ones share theirs."""
    return {launch: CollectiveCode(launch, ranks, calls) for launch in launches}
