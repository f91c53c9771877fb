"""A program that several ranks run: its collectives and the engines that they go by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from luminal.base.errors import InputError
from luminal.kernel import tile_text
from luminal.program import launch_text
from luminal.program.launch_list import CollectiveLaunch, Launch, Program, walk
from luminal.runtime.ranks import Engines


def collectives(launches: tuple[Launch, ...]) -> tuple[CollectiveLaunch, ...]:
    """The launches of collectives, Loop bodies once."""
    return tuple(launch for launch in walk(launches) if isinstance(launch, CollectiveLaunch))


def text_of(program: Program) -> str:
    """All that makes ranks compute alike: the launch list and its kernels."""
    kernels = (tile_text.to_text(kernel) for kernel in program.kernels)
    return "\n".join((launch_text.to_text(program, named=False), *kernels))


class Ranks:
    """The engines of a program's mesh axes, and its collectives under way."""

    def __init__(self, launches: tuple[Launch, ...]) -> None:
        self.launches = collectives(launches)
        self.engines: Engines = {}
        self.tickets: dict[int, Any] = {}  # by the number that a start and its wait share
        self.is_alone = False
        self.is_first = True  # other ranks may still compile

    def join(self, engines: Engines) -> None:
        """Takes the engine of each mesh axis. Raises InputError where one has other ranks than the
        program.
        """
        for launch in self.launches:
            axis, ranks = launch.attrs.axis, launch.attrs.ranks
            if axis not in engines:
                continue
            if engines[axis].size != ranks:
                raise InputError(
                    f"{launch.title}: the program is for {ranks} ranks along this axis, and the "
                    f"engine has {engines[axis].size}; compile with the mesh that runs it"
                )
            if engines[axis].axis not in ("", axis):
                raise InputError(
                    f"{launch.title}: the engine is that of the mesh axis {engines[axis].axis!r}"
                )
        self.engines = engines
        self.is_first = True

    def begin(self, text: Callable[[], str]) -> None:
        """Makes sure of all engines before a run, and at the first one that all ranks run the same
        program: `text`. Raises InputError for an engine that is missing.
        """
        self.tickets.clear()
        if not self.is_first or self.is_alone:
            return
        for launch in self.launches:
            if launch.attrs.axis not in self.engines:
                raise InputError(
                    f"{launch.title}: no engine for this mesh axis; give one to the executable, as "
                    f"mesh=OnRanks({{{launch.attrs.axis!r}: engine}})"
                )
        for axis in dict.fromkeys(launch.attrs.axis for launch in self.launches):
            engine = self.engines[axis]
            told = self._told() if engine.unlike else text()
            engine.check_same(told, "the program")

    def _told(self) -> str:
        """What programs of unlike devices have alike: their collectives, in their order."""
        return "\n".join(
            f"{launch.title}: {launch.attrs}, {launch.sizes}"
            for launch in self.launches
            if launch.phase != "wait"
        )

    def end(self) -> None:
        """Notes that a run is over: no rank compiles any more."""
        self.is_first = False
