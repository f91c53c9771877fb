"""What was counted of a launch: the accesses of a group, instructions, waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from luminal.base.records import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """One access of a kernel, as the rows of a group's lanes make it.

    `place` is "global", "scratch" or "shared"; `size` the bytes of a lane; `times` how often a
    chunk comes by; `requests` the rows of lanes that take part. Each row touches `taken` sectors of
    memory, or takes as many turns of the banks of shared memory, where `least` would do for what
    it reads or writes; and `lines` of the unit's cache. `by_data`: its place depends on what was
    loaded.
    """

    buffer: str
    kind: str
    place: str
    size: int
    times: float
    requests: int
    taken: float
    least: float
    lines: float
    is_looped: bool
    by_data: bool

    @property
    def excess(self) -> float:
        """How many times the least it takes."""
        return self.taken / self.least

    @property
    def far(self) -> float:
        """The share of what it touches that it uses: the rest is near when it comes by again."""
        return 1.0 if self.by_data else min(1.0, self.least / self.taken)

    def __str__(self) -> str:
        unit = "turns" if self.place == "shared" else "sectors"
        looped = " in a loop" if self.is_looped else ""
        return (
            f"{self.kind} of {self.size} B a lane, {self.place} {self.buffer}: {self.taken:.3g} "
            f"{unit} where {self.least:.3g} would do, x{self.times:g}{looped}"
        )


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one chunk.

    `lanes` of a group; `registers` of a lane and `shared_bytes` of a group, by which as many are
    resident; `issued`: instructions of all lanes together, by pipe, and products of 16-bit floats
    by matrix instructions; `waits`: how often a lane waits for memory, for shared memory or at a
    barrier, and `beside` products that run on; `early`: the bytes that a group fetches before
    earlier launches have ended; `columns`: that a group allocates of tensor memory.
    """

    lanes: int
    registers: int
    shared_bytes: int
    issued: Mapping[str, float]
    waits: Mapping[str, float]
    accesses: tuple[Access, ...]
    early: int = 0
    columns: int = 0
    beside: Mapping[str, float] = field(default_factory=dict)

    def total(self, what: str, *places: str) -> float:
        """The sum over accesses to places of "taken", "least" or "lines"."""
        return sum(
            access.times * access.requests * float(getattr(access, what))
            for access in self.accesses
            if access.place in places
        )


def mean(works: Sequence[Work]) -> Work:
    """The mean of several chunks' work; registers and memory are those of one."""
    accesses: dict[Access, float] = defaultdict(float)
    for work in works:
        for access in work.accesses:
            accesses[replace(access, times=0.0)] += access.times / len(works)

    def of(parts: Iterable[Mapping[str, float]]) -> Mapping[str, float]:
        total: dict[str, float] = defaultdict(float)
        for part in parts:
            for name, count in part.items():
                total[name] += count / len(works)
        return dict(total)

    return replace(
        works[0],
        issued=of(work.issued for work in works),
        waits=of(work.waits for work in works),
        beside=of(work.beside for work in works),
        accesses=tuple(replace(access, times=times) for access, times in accesses.items()),
    )
