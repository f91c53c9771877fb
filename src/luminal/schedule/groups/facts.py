"""What schedules may know of how a device runs groups of lanes."""

from __future__ import annotations

from luminal.base.dots import Dot
from luminal.base.records import dataclass
from luminal.schedule.groups.chip import Pipes

USUAL = Pipes(issue=128, f32=128, f64=64, i32=64, special=16, exchange=32, shared=32,
              matrix=1024, left=2048)  # fmt: skip
"""A unit of which nothing is known."""


@dataclass(frozen=True, slots=True)
class Groups:
    """How a device runs groups: of `lanes` where nothing speaks for others, of `most` at most, with
    `shared_bytes` of their own. `is_rule`: kernels are run by groups unless it is chosen otherwise.
    The lanes of a `subgroup` step together and exchange values without memory; 1: none do.
    `in_vectors`: a compiler makes vectors of so many lanes, as for CPUs, and sees that they share a
    value only where all of a group do.
    `copies`: the bytes that a lane copies to shared memory at once without registers, 0 if it does
    not; `copies_beside`: do lanes that step together copy beside each other? `boxes`: does a device
    do so that is asked for a block, for so many groups of a `cluster` at once? `pipes`: how fast a
    unit is, by instructions for matrices too. `left`: those of these whose factors stay in shared
    memory.
    `begins_early`: a kernel may begin while the one ahead still runs, and waits for it by itself.
    """

    lanes: int
    most: int
    shared_bytes: int
    is_rule: bool
    subgroup: int = 1
    in_vectors: bool = False
    copies: int = 0
    copies_beside: bool = False
    boxes: bool = False
    cluster: int = 1
    pipes: Pipes = USUAL
    begins_early: bool = False
    left: tuple[Dot, ...] = ()

    @property
    def meets_often(self) -> bool:
        """Do groups pay whose lanes do little between barriers? Vectors take a loop for that."""
        return not self.in_vectors
