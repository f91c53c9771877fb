"""What schedules may know of how a device runs groups of lanes."""

from __future__ import annotations

from luminal.base.dots import Dot
from luminal.base.records import dataclass


@dataclass(frozen=True, slots=True)
class Groups:
    """How a device runs groups: of `lanes` where nothing speaks for others, of `most` at most, with
    `shared_bytes` of their own. `is_rule`: kernels are run by groups unless it is chosen otherwise.
    The lanes of a `subgroup` step together and exchange values without memory; 1: none do.
    `in_vectors`: a compiler makes vectors of so many lanes, as for CPUs, and sees that they share a
    value only where all of a group do.
    `copies`: do lanes copy to shared memory without registers? `matrix`: the products of 16-bit
    floats that a unit multiplies in a cycle by instructions for matrices, where it has them.
    `left`: those whose factors stay in shared memory, by which a unit multiplies `left_rate`.
    `begins_early`: a kernel may begin while the one ahead still runs, and waits for it by itself.
    """

    lanes: int
    most: int
    shared_bytes: int
    is_rule: bool
    subgroup: int = 1
    in_vectors: bool = False
    copies: bool = False
    matrix: int = 1024
    begins_early: bool = False
    left: tuple[Dot, ...] = ()
    left_rate: int = 2048

    @property
    def meets_often(self) -> bool:
        """Do groups pay whose lanes do little between barriers? Vectors take a loop for that."""
        return not self.in_vectors
