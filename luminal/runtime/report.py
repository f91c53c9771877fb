"""What an executable does and holds: its launches with their work, and its memory in bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One launch site of a run: a Loop's body appears once, with the trips of its Loops."""

    label: str
    kernel: int  # which of the program's distinct kernels
    trips: int
    chunks: int  # of one launch
    flops: int  # of all trips
    bytes: int  # read and written, of all trips


class Rejected(NamedTuple):
    """Candidates that a search gave up for one reason, and one of them."""

    reason: str
    count: int
    example: str


class Best(NamedTuple):
    """A moment of a search: seconds since its start, candidates so far, the best one's time."""

    seconds: float
    candidates: int
    best_seconds: float


class RuleUse(NamedTuple):
    """What one rewrite rule did; `kind` is its class: exact, rounding or domain."""

    name: str
    kind: str
    matches: int
    new_nodes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SearchSummary:
    """What a search tried and decided. Seconds of programs are those of one run."""

    mode: str
    seed: int
    candidates: int
    kernels_built: int
    rejected: tuple[Rejected, ...]
    history: tuple[Best, ...]  # where the best time fell, and the end
    fast_seconds: float
    best_seconds: float
    decision: str  # "found 1.31x over fast", "nothing beat the fast program; it runs"
    rules: tuple[RuleUse, ...] = ()
    from_database: bool = False


@dataclass(frozen=True, slots=True)
class CompileSummary:
    """What the compile of one program did: seconds by step (they add up), and its search."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    search: SearchSummary | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The launches of one run at `dims`; `prologue` runs only after a weight was set."""

    dims: dict[str, int]
    kernels: tuple[KernelRow, ...]
    prologue: tuple[KernelRow, ...] = ()

    @property
    def flops(self) -> int:
        """Arithmetic operations of one run."""
        return sum(row.flops for row in self.kernels)

    @property
    def bytes(self) -> int:
        """Bytes that one run's launches read and write."""
        return sum(row.bytes for row in self.kernels)

    def __str__(self) -> str:
        dims = ", ".join(f"{name} = {n}" for name, n in self.dims.items())
        head = f"{len(self.kernels)} launches, {self.flops:,} flops, {self.bytes:,} bytes"
        rows: list[tuple[str, ...]] = [("kernel", "label", "trips", "chunks", "flops", "bytes")]
        rows += [_cells(row) for row in self.kernels]
        if self.prologue:
            rows += [("", "-- prologue", "", "", "", ""), *map(_cells, self.prologue)]
        return "\n".join([head + (f" at {dims}" if dims else ""), *table_lines(rows)])


@dataclass(frozen=True, slots=True)
class WorkMemory:
    """Memory that a backend's runner holds, in bytes."""

    derived_bytes: int = 0
    arena_bytes: int = 0
    scratch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What an executable holds or uses, in bytes. Inputs are borrowed, weights, States shared."""

    input_bytes: int
    weight_bytes: int
    derived_bytes: int
    state_bytes: int
    arena_bytes: int
    scratch_bytes: int
    output_pool_bytes: int

    @property
    def total_bytes(self) -> int:
        """The sum of the parts."""
        return sum(self._parts().values())

    def _parts(self) -> Mapping[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __str__(self) -> str:
        rows = [(name.removesuffix("_bytes"), f"{n:,}") for name, n in self._parts().items()]
        total = ("total", f"{self.total_bytes:,}")
        return "\n".join(table_lines([("memory", "bytes"), *rows, total]))


def _cells(row: KernelRow) -> tuple[str, ...]:
    numbers = (row.trips, row.chunks, row.flops, row.bytes)
    return (str(row.kernel), row.label, *(f"{n:,}" for n in numbers))


def table_lines(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns of equal width under the first row's heads; columns of numbers to the right."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [all(cell[:1].isdigit() or not cell for cell in column[1:]) for column in columns]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in rows
    ]
