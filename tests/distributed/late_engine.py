"""An engine of threads that moves everything as late as it may: when the last rank waits.

What is sent is read then, and what is received is poison until then: a buffer that is used again
too early, or read before its wait, shows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from luminal.backends.reference.ranks import collective
from luminal.distribute.mesh import Mesh
from luminal.hlir.attributes import CollectiveAttrs

T = TypeVar("T")
DEADLINE = 20.0  # seconds: a rank that does not come is a test that fails


class Group:
    """The ranks along one mesh axis."""

    def __init__(self, size: int, axis: str) -> None:
        self.size, self.axis = size, axis
        self.changed = threading.Condition()
        self.meetings: dict[int, list[Any]] = {}  # by number: what each rank asked for
        self.waiting: dict[int, int] = {}
        self.failed = False


class LateEngine:
    """One rank of a Group; `calls` are the collectives that it has started."""

    unlike = False

    def __init__(self, group: Group, rank: int) -> None:
        self.group, self.rank, self.size, self.axis = group, rank, group.size, group.axis
        self.calls: list[tuple[Any, ...]] = []

    def start(self, kind: Any, source: Any, target: Any, /, **how: Any) -> int:
        number = len(self.calls)
        self.calls.append((kind, how["label"], source.nbytes))
        target.view(np.uint8)[...] = 0xA5
        with self.group.changed:
            ranks = self.group.meetings.setdefault(number, [None] * self.size)
            ranks[self.rank] = (kind, source, target, how)
        return number

    def wait(self, ticket: int, /, *, first: bool = False) -> None:
        group = self.group
        with group.changed:
            group.waiting[ticket] = group.waiting.get(ticket, 0) + 1
            if group.waiting[ticket] == self.size:
                self._move(group.meetings.pop(ticket))
                group.changed.notify_all()
            done = group.changed.wait_for(
                lambda: ticket not in group.meetings or group.failed, DEADLINE
            )
            if not done or group.failed:
                group.failed = True
                group.changed.notify_all()
                raise RuntimeError(f"rank {self.rank}: not all ranks have come to {ticket}")

    def check_same(self, text: str, label: str, /) -> None:
        with self.group.changed:
            ranks = self.group.meetings.setdefault(-1, [])
            ranks.append(text)
            assert text == ranks[0], label

    def _move(self, ranks: list[Any]) -> None:
        kind, _, _, how = ranks[0]
        for other in ranks:
            assert (other[0], other[3]) == (kind, how), "ranks start different collectives"
        attrs = CollectiveAttrs(
            kind, self.group.axis, self.size, how.get("monoid", "").title(), how["pairs"]
        )
        mesh = Mesh((self.size,), (self.group.axis,))
        results = collective(attrs, mesh, tuple(source.copy() for _, source, _, _ in ranks))
        for (_, _, target, _), result in zip(ranks, results, strict=True):
            target[...] = result


def on_ranks(count: int, work: Callable[[int], T], *groups: Group) -> list[T]:
    """What `work` gives on each rank, a thread for each; raises what one of them raises."""
    results: list[Any] = [None] * count
    failures: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = work(rank)
        except BaseException as failure:
            failures.append(failure)
            for group in groups:
                with group.changed:
                    group.failed = True
                    group.changed.notify_all()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * DEADLINE)
    if failures:
        raise failures[0]
    return results
