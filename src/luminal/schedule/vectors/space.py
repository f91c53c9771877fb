"""The space of one kernel's schedules: the knobs worth trying, the most promising first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import zip_longest
from typing import TypeVar

from luminal.kernel.fused import Fused
from luminal.kernel.knobs import Choices, Knobs, with_knob
from luminal.schedule.vectors.facts import Facts
from luminal.schedule.vectors.nest import explored
from luminal.schedule.vectors.vector_target import VectorTarget

Made = TypeVar("Made")
MOST = 40  # schedules of a kernel; building and timing one takes some 30 ms
COMBINED = ("vector", "rows", "tile", "pack")  # choices that may change which others are best


def space(fused: Fused, target: VectorTarget) -> tuple[Knobs, ...]:
    """The legal schedules of a fused kernel, the most promising first."""
    return nearby(partial(explored, Facts.of(fused, target)), COMBINED)


# Most choices act alone, so one or two changes from the rule's own reach most of what is gained;
# all combinations would be thousands, at 30 ms each.
def nearby(
    explore: Callable[[Knobs], tuple[Made, Choices]], combined: Collection[str]
) -> tuple[Knobs, ...]:
    """The schedules that `explore` makes, each once: () first, then those that make one choice
    otherwise, then those that change one thing more of those in `combined`.
    """
    knobs_of: dict[Knobs, Made] = {}
    frontier: Iterable[Knobs] = ((),)
    while True:
        beside: list[Iterator[Knobs]] = []
        for knobs in frontier:
            schedule, choices = explore(knobs)
            if schedule in knobs_of.values():
                continue
            knobs_of[knobs] = schedule
            if len(knobs_of) == MOST:
                return tuple(knobs_of)
            if all(name in combined for name, _ in knobs):
                beside.append(_neighbours(knobs, choices))
        if not beside:
            return tuple(knobs_of)
        frontier = list(dict.fromkeys(_in_turns(beside)))


def _neighbours(knobs: Knobs, choices: Choices) -> Iterator[Knobs]:
    """The knobs with one more set, of those asked for later (they keep what the others mean): of
    every choice its first alternative, then the second.
    """
    names = list(choices.offered)
    later = max((names.index(name) + 1 for name, _ in knobs), default=0)
    return _in_turns(
        [with_knob(knobs, name, value) for value in choices.offered[name][1:]]
        for name in names[later:]
    )


def _in_turns(sources: Iterable[Iterable[Knobs]]) -> Iterator[Knobs]:
    """The first of each, then the second of each."""
    for turn in zip_longest(*sources):
        yield from (knobs for knobs in turn if knobs is not None)
