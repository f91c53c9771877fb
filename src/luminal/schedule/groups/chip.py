"""Facts of a chip: what its groups may have, and how fast each of its parts is.

A row of them is what a driver would say of one product of an architecture. Where a driver is
present it is asked instead, and the row says the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from luminal.base.dots import Dot
from luminal.base.records import dataclass
from luminal.schedule.groups.pipes import LEFT, MATRIX, MATRIX_F32, MATRIX_F64, pipe_of, turns_of


@dataclass(frozen=True, slots=True)
class Pipes:
    """What a unit does in a cycle at most, in lanes, by the kind of the instruction.

    `issue`: of any kind. `special`: reciprocals, roots, exponentials. `exchange`: values that lanes
    give each other, `shared`: words of 4 bytes that they read from shared memory. `matrix`:
    products of 16-bit floats that are added up in f32, by the matrix instructions of `Chip.dots`;
    `left`: by those of `Chip.left`; `matrix_f32` and `matrix_f64`: products of whole f32 and of f64
    by the instructions of `Chip.dots`, 0 where they are by bytes those of 16 bits.
    """

    issue: int
    f32: int
    f64: int
    i32: int
    special: int
    exchange: int
    shared: int
    matrix: int
    left: int = 0
    matrix_f32: int = 0
    matrix_f64: int = 0

    def rate(self, pipe: str) -> float:
        """Products that a pipe of matrix instructions begins in a cycle."""
        rates = {
            MATRIX: self.matrix,
            LEFT: self.left,
            MATRIX_F32: self.matrix_f32 or self.matrix / 2,
            MATRIX_F64: self.matrix_f64 or self.matrix / 4,
        }
        return rates[pipe] or 1

    def products(self, dot: Dot) -> float:
        """Products of a matrix instruction in a cycle."""
        return self.rate(pipe_of(dot)) / turns_of(dot)


@dataclass(frozen=True, slots=True)
class Chip:
    """One architecture, as one of its products is built.

    `units` work side by side, and each has `registers` (of 32 bits), `unit_bytes` of shared memory,
    of which a group may have `group_bytes`, and room for `resident` lanes. A group has `most_lanes`
    at most, of which each `subgroup` steps together. All units share `cache_bytes`, their last
    cache, and `memory` bytes a second at `hertz`. `like`: the row that speaks where nothing is
    known of the chip itself. `dots`: its instructions for matrices, the preferred ones first;
    `left`: those whose factors stay in shared memory, which kernels may use instead.
    `copies`: bytes that a lane copies to shared memory at once without registers.
    `is_chained`: kernels can wait for earlier launches by themselves.
    """

    name: str
    units: int
    registers: int
    unit_bytes: int
    group_bytes: int
    resident: int
    most_lanes: int
    subgroup: int
    cache_bytes: int
    memory: float
    hertz: float
    pipes: Pipes
    like: str = ""
    dots: tuple[Dot, ...] = ()
    is_chained: bool = False
    left: tuple[Dot, ...] = ()
    copies: int = 0

    def __str__(self) -> str:
        return f"{self.name}, taken for {self.like}" if self.like else self.name

    def told(self, facts: Mapping[str, float]) -> Chip:
        """The chip with facts by their names, as a driver tells them; 0 where it does not."""
        told_facts: dict[str, Any] = {name: value for name, value in facts.items() if value}
        return replace(self, **told_facts)


def nearest(name: str, rows: Sequence[Chip], age: Callable[[str], Any]) -> Chip:
    """The chip of a name: a row, else one like the newest of those that are older, else like the
    oldest. `age` orders names.
    """
    ordered = sorted(rows, key=lambda row: age(row.name))
    older = [row for row in ordered if age(row.name) <= age(name)]
    row = (older or ordered[:1])[-1]
    return row if row.name == name else replace(row, name=name, like=row.name)
