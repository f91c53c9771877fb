"""What schedules of vectors look at: of CPUs, and of devices taken for machines of scalars."""

from __future__ import annotations

from luminal.base.records import dataclass
from luminal.base.target import Target

IDLE = 0.8  # of the lanes in use: below, strips pay that are packed for other lanes
MANY_REGISTERS = 32  # hold the 16 sums of a large tile and what they multiply, or two such tiles
LONG_STEP = 1 << 13  # bits of all registers: half of them are multiplied by a step of a tile,
# some 512 bits in a cycle
TILE_WIDTH = 2  # registers of a tile's row, at least: each factor of a row is multiplied so often


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorTarget(Target):
    """`registers` counts vector registers of `vector_bits` bits. `l1_bytes` and `l2_bytes` are per
    core (data), `l3_bytes` is shared. `multiplies_memory`: may a factor of a multiplication be in
    memory? Else each that is loaded takes a register. `stores_past_caches`: does a stream of stores
    have to say that it passes the caches by?
    """

    vector_bits: int
    registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    line_bytes: int = 64
    multiplies_memory: bool = True
    stores_past_caches: bool = True

    @property
    def tile_width(self) -> int:
        """How many registers a row of a tile, and of a panel, usually has: those of a line where
        registers are short and many.

        A row has fewer sums than hide the latency of a multiplication then, if it stands alone.
        """
        if self.registers < MANY_REGISTERS:
            return TILE_WIDTH
        return max(TILE_WIDTH, 8 * self.line_bytes // self.vector_bits)

    @property
    def has_long_steps(self) -> bool:
        """Does a step of a tile take so long that what the next one reads comes meanwhile?"""
        return self.registers * self.vector_bits >= LONG_STEP

    def vector_lanes(self, dtype_size: int) -> int:
        """How many elements of `dtype_size` bytes one vector register holds (at least 1)."""
        return max(1, self.vector_bits // (8 * dtype_size))
