"""The record of target facts: what selection, schedules and renderers may know of a machine."""

from __future__ import annotations

from dataclasses import dataclass

from luminal.dots import Dot


@dataclass(frozen=True, slots=True)
class Target:
    """Facts that all devices have, filled by a backend. Equal facts mean interchangeable programs.

    `l1_bytes` and `l2_bytes` are per core (data), `l3_bytes` is shared; `cores` is how many the
    process may use; `dots` are the sums of products that there is an instruction for; `registers`
    counts vector registers of `vector_bits` bits. `libraries` are those that kernels may call here.
    """

    name: str
    vector_bits: int
    registers: int
    dots: tuple[Dot, ...]
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    line_bytes: int = 64
    libraries: tuple[str, ...] = ()

    def vector_lanes(self, dtype_size: int) -> int:
        """How many elements of `dtype_size` bytes one vector register holds (at least 1)."""
        return max(1, self.vector_bits // (8 * dtype_size))
