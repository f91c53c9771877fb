"""What no two runs may touch at one time: States, and Parameters that programs assign."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from luminal.hlir.graph import Assign, Graph
from luminal.hlir.substitute import blocks
from luminal.memory.state import Assignable


class Held:
    """Locks held inside a `with`, taken in order: an ExitStack costs ten times as much."""

    __slots__ = ("_locks",)

    def __init__(self, locks: Sequence[threading.RLock]) -> None:
        self._locks = locks

    def __enter__(self) -> None:
        taken = 0
        try:
            for lock in self._locks:
                lock.acquire()
                taken += 1
        except BaseException:  # an interrupt while it waits
            self._release(taken)
            raise

    def __exit__(self, *error: object) -> None:
        self._release(len(self._locks))

    def _release(self, count: int) -> None:
        for lock in self._locks[:count]:
            lock.release()


def assignable(graph: Graph) -> tuple[Assignable, ...]:
    """Every State that the graph reads or assigns, and every Parameter that it assigns, in the
    order in which locks are taken.
    """
    owners: set[Assignable] = {sink.state for sink in graph.sinks if isinstance(sink, Assign)}
    for block in blocks(graph):
        owners.update(node.attrs.state for node in block.get("State", ()))
        for node in block.get("Loop", ()):
            owners.update(state for states in node.attrs.assigned for state in states or ())
    return tuple(sorted(owners, key=lambda state: state.id))
