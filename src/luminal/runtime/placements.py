"""Where the temporary buffers of a launch list lie, for the sizes that dims give them."""

from __future__ import annotations

from collections.abc import Sequence

from luminal import config
from luminal.program import memory_plan, verify
from luminal.program.launch_list import Program
from luminal.program.memory_plan import Placement
from luminal.program.quantities import Quantities
from luminal.runtime.output_pool import block_bytes

MAX_PLACEMENTS = 32  # that are remembered, the oldest go first


class Placements:
    """The memory plan of a Program's runs, and placements so far; `quantities` takes the sizes."""

    def __init__(self, program: Program, quantities: Quantities) -> None:
        self.plan = memory_plan.plan(program, program.launches)
        self._program = program
        self._sizes = [quantities.add(program.buffers[b].bytes) for b in self.plan.buffers]
        self._distinct_sizes = tuple(dict.fromkeys(self._sizes))
        self._known: dict[tuple[int, ...], Placement] = {}  # by distinct sizes

    def at(self, values: Sequence[int]) -> Placement:
        """A placement of buffers at least this big: an old one, unless it is twice too big.

        Sizes are rounded up, so that a growing dim (a decoder's `past`) seldom needs a new one.
        """
        key = tuple([block_bytes(values[number]) for number in self._distinct_sizes])
        found = self._known.get(key)
        if found is None:
            rounded = dict(zip(self._distinct_sizes, key, strict=True))
            sizes = tuple([rounded[number] for number in self._sizes])
            found = self._fitting(sizes) or self._place(sizes)
            if len(self._known) >= MAX_PLACEMENTS:
                del self._known[next(iter(self._known))]
            self._known[key] = found
        return found

    def _fitting(self, sizes: tuple[int, ...]) -> Placement | None:
        for known in self._known.values():
            fits = all(n <= m for n, m in zip(sizes, known.sizes, strict=True))
            if fits and sum(known.sizes) <= 2 * sum(sizes):
                return known
        return None

    def _place(self, sizes: tuple[int, ...]) -> Placement:
        placement = memory_plan.place(self.plan, sizes)
        if config.get("LUMINAL_VERIFY"):
            verify.verify_placement(self._program, self._program.launches, self.plan, placement)
        return placement
