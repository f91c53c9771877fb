"""What is counted of a launch for a model of cost that learns: the work of its lanes, and how long
each part of the chip takes for it.
"""

from __future__ import annotations

from luminal.schedule.groups.bounds import Bounds
from luminal.schedule.groups.counts import Work

PLACES = ("global", "scratch", "shared")
NANOSECONDS = 1e9


def of_work(work: Work, chunks: int) -> dict[str, float]:
    """The counts of one launch by name, all chunks together but for what a lane or a group has."""
    counted = {
        "chunks": float(chunks),
        "lanes of a group": float(work.lanes),
        "registers of a lane": float(work.registers),
        "shared bytes of a group": float(work.shared_bytes),
        "accesses": float(len(work.accesses)),
    }
    counted |= {f"issued {pipe}": chunks * count for pipe, count in work.issued.items()}
    counted |= {f"waits of a lane for {place}": count for place, count in work.waits.items()}
    for what in ("taken", "least", "lines"):
        for place in PLACES:
            counted[f"{what} {place}"] = chunks * work.total(what, place)
    return counted


def of_bounds(bounds: Bounds) -> dict[str, float]:
    """The nanoseconds of each part of the chip, and the groups that a unit runs at once."""
    parts = {f"ns of {name}": NANOSECONDS * taken for name, taken in bounds.parts.items()}
    return {**parts, "groups of a unit": float(bounds.groups)}
