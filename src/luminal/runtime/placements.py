"""Where the temporary buffers of a launch list lie, for the sizes that dims give them."""

from __future__ import annotations

from collections.abc import Sequence

from luminal.base import config
from luminal.program import memory_plan, verify
from luminal.program.largest import largest, told
from luminal.program.launch_list import Program
from luminal.program.memory_plan import Placement
from luminal.program.quantities import Quantities
from luminal.runtime.output_pool import block_bytes

MAX_PLACEMENTS = 32  # that are remembered, the oldest go first


# Sizes depend on dims, so a program lists buffers without places; offsets are computed when dims
# are bound, and kept.
class Placements:
    """The memory plan of a Program's runs, and placements so far; `quantities` takes the sizes."""

    def __init__(self, program: Program, quantities: Quantities) -> None:
        self.plan = memory_plan.plan(program, program.launches)
        self._program = program
        self._sizes = [quantities.add(program.buffers[b].bytes) for b in self.plan.buffers]
        self.sizes = tuple(dict.fromkeys(self._sizes))
        """The quantities that are sizes of buffers, each once."""
        self._known: dict[tuple[int, ...], Placement] = {}  # by distinct sizes

    def at(self, values: Sequence[int]) -> Placement:
        """A placement of buffers at least this big: an old one, unless it is twice too big.

        Sizes are rounded up, so that a growing dim (a decoder's `past`) seldom needs a new one.
        """
        # A decoder's `past` grows by one each run: sizes rounded up to classes let one placement
        # serve hundreds of runs, and placing again costs more than the waste.
        key = tuple([block_bytes(values[number]) for number in self.sizes])
        placement = self._known.get(key)
        if placement is None:
            rounded = dict(zip(self.sizes, key, strict=True))
            sizes = tuple([rounded[number] for number in self._sizes])
            placement = self._fitting(sizes) or self._place(sizes)
            if len(self._known) >= MAX_PLACEMENTS:
                del self._known[next(iter(self._known))]
            self._known[key] = placement
        return placement

    def whose(self, placement: Placement) -> str:
        """The words of an error that say how large the arena is, which its largest values are and
        where they come from, and what makes it smaller.
        """
        return (
            f"the arena of a run takes {told(placement.arena_bytes)}, most of it "
            f"{largest(self._program, self.plan, placement.sizes)}. Make it smaller by smaller "
            "inputs, by fewer of them at a time, or for a training step by memory_limit="
        )

    def _fitting(self, sizes: tuple[int, ...]) -> Placement | None:
        for earlier in self._known.values():
            # A placement for larger sizes is right for smaller ones as well, since places only must
            # not overlap.
            fits = all(n <= m for n, m in zip(sizes, earlier.sizes, strict=True))
            if fits and sum(earlier.sizes) <= 2 * sum(sizes):
                return earlier
        return None

    def _place(self, sizes: tuple[int, ...]) -> Placement:
        placement = memory_plan.place(self.plan, sizes)
        if config.get("LUMINAL_VERIFY"):
            verify.verify_placement(self._program, self._program.launches, self.plan, placement)
        return placement
