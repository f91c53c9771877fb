"""The seconds that each part of a chip takes for a launch; the longest is what bounds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from luminal.base.dots import TENSOR_COLUMNS
from luminal.base.records import dataclass
from luminal.schedule.groups.chip import Chip
from luminal.schedule.groups.counts import Work
from luminal.schedule.groups.pipes import (
    EXCHANGE,
    F32,
    F64,
    FAR,
    I32,
    MEMORY,
    PRODUCTS,
    SPECIAL,
)
from luminal.schedule.groups.touched import BANKS, ROW, SECTOR

COPIED = 0.9  # of a memory's bytes a second that a copy reaches
LATENCY = {"global": 700e-9, "near": 40e-9, "scratch": 40e-9, "shared": 16e-9, "barrier": 15e-9,
           "matrix": 18e-9, "cluster": 103e-9}  # fmt: skip
"""From asking to having: from memory, the unit's own cache, in which scratch is, and so on; another
unit of a cluster hears after 180 cycles (arXiv 2402.13499).
"""
WORST = 3  # accesses that are told of
CACHED = 300e-9  # likewise of what stays in the last cache


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds by part: `issue` of instructions, `shared` memory's banks, `sectors` of the caches,
    `memory`, and `latency`, of what waits. `groups`: that a unit runs at once. Of `memory`, `early`
    may pass before earlier launches have ended; `beside` is latency of lanes whose products run on.
    """

    issue: float
    shared: float
    sectors: float
    memory: float
    latency: float
    groups: int
    early: float = 0.0
    beside: float = 0.0

    @property
    def seconds(self) -> float:
        """What a launch takes."""
        return max(self.memory, self.late)

    @property
    def late(self) -> float:
        """What it takes beside memory. A group that is alone does nothing while it waits."""
        busy = max(self.issue, self.shared, self.sectors, self.beside)
        return max(busy, self.latency) + min(busy, self.latency) / self.groups

    @property
    def parts(self) -> Mapping[str, float]:
        """The parts by name."""
        names = ("issue", "shared", "sectors", "memory", "latency")
        return {name: getattr(self, name) for name in names}

    @property
    def bound(self) -> str:
        """The part that takes longest."""
        return max(self.parts, key=lambda name: self.parts[name])


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What of a unit a launch takes: `held` groups fit at once, and the launch has `groups` of them
    for a unit. A lane has `registers`, a group `shared_bytes` and `lanes`; `share` of the lanes
    that a unit has room for are there. `limit`: what allows no more.
    """

    registers: int
    shared_bytes: int
    lanes: int
    held: int
    groups: int
    share: float
    limit: str


def occupancy(work: Work, chip: Chip, chunks: int, most: int) -> Occupancy:
    """What of a unit a launch of so many chunks takes."""
    allowed = _allowed(work, chip, most)
    held = max(1, min(allowed.values()))
    groups = max(1, min(held, -(-chunks // chip.units)))
    limit = "chunks" if groups < held else min(allowed, key=allowed.__getitem__)
    share = min(1.0, groups * work.lanes / chip.resident)
    return Occupancy(work.registers, work.shared_bytes, work.lanes, held, groups, share, limit)


def resident(work: Work, chip: Chip, most: int) -> int:
    """Groups that a unit holds at once; it is given `most` at most."""
    return max(1, min(_allowed(work, chip, most).values()))


def _allowed(work: Work, chip: Chip, most: int) -> dict[str, int]:
    """The groups that each part of a unit has room for, the scarcest kinds first."""
    return {
        "registers": chip.registers // (work.registers * work.lanes),
        "shared memory": chip.unit_bytes // max(1, work.shared_bytes),
        "lanes": chip.resident // work.lanes,
        "columns of matrices": TENSOR_COLUMNS // max(1, work.columns),
        "groups of a launch": most,
    }


def bounds(work: Work, chip: Chip, chunks: int, size: float, most: int) -> Bounds:
    """What bounds a launch of so many chunks that reads and writes `size` bytes."""
    held = resident(work, chip, most)
    share = -(-chunks // chip.units)  # chunks of the unit that has most
    turns = -(-share // held)
    cycles = share / chip.hertz
    latency = {**LATENCY, "global": LATENCY["global"] if size > chip.cache_bytes else CACHED}
    waits, beside = (
        sum(latency[place] * times for place, times in counted.items())
        for counted in (work.waits, work.beside)
    )
    memory = "global", "scratch"
    far = work.total("least", *memory) * SECTOR / FAR
    return Bounds(
        issue=_issue(work, chip) * cycles,
        shared=work.total("taken", "shared") * BANKS / chip.pipes.shared * cycles,
        sectors=max(work.total("lines", *memory), far) * cycles,
        memory=size / (COPIED * chip.memory),
        latency=turns * (waits + _stored_alone(work) / chip.hertz),
        groups=max(1, min(held, share)),
        beside=turns * beside,
        early=min(size, work.early * min(chunks, held * chip.units)) / (COPIED * chip.memory),
    )


def _stored_alone(work: Work) -> float:
    """Cycles in which a group that multiplies while it waits stores its results, and multiplies
    nothing.
    """
    stores = (a for a in work.accesses if a.kind == "store" and a.place == "global")
    sectors = sum(a.times * a.requests * a.least for a in stores if not a.is_looped)
    return sectors * SECTOR / FAR if work.beside else 0.0


def lines(work: Work, bounds: Bounds) -> tuple[str, ...]:
    """Seconds and their parts in words, and the accesses that take most beyond their least."""
    parts = sorted(bounds.parts.items(), key=lambda part: -part[1])
    shown = ", ".join(f"{name} {seconds * 1e6:.3g}" for name, seconds in parts)
    first = (
        f"{bounds.seconds * 1e6:.3g} us, bound by {bounds.bound} ({shown}); "
        f"{work.registers} registers, {bounds.groups} groups of {work.lanes} lanes a unit"
    )
    bad = Counter[str]()
    for access in work.accesses:
        if access.excess > 1 and not access.by_data:
            bad[str(access)] += round(
                access.times * access.requests * (access.taken - access.least)
            )
    return first, *(text for text, _ in bad.most_common(WORST))


def _issue(work: Work, chip: Chip) -> float:
    """Cycles in which a unit issues the instructions of a chunk."""
    pipes, issued = chip.pipes, work.issued
    rates = {
        F64: pipes.f64 or 1,
        I32: pipes.i32,
        SPECIAL: pipes.special,
        EXCHANGE: pipes.exchange,
        MEMORY: ROW,
        **{pipe: pipes.rate(pipe) for pipe in PRODUCTS},
    }
    beside = SPECIAL, *PRODUCTS  # counted in others, or no instructions but products
    all_ = sum(count for pipe, count in issued.items() if pipe not in beside) / pipes.issue
    f32 = issued.get(F32, 0) / pipes.f32
    return max(all_, f32, *(issued.get(pipe, 0) / rate for pipe, rate in rates.items()))
