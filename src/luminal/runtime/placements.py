"""Where the temporary buffers of a launch list lie, for the sizes that dims give them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from luminal.base import config
from luminal.kernel.tile_ir import Role
from luminal.program import memory_plan, verify
from luminal.program.launch_list import Launch, LoopLaunch, Program
from luminal.program.memory_plan import Placement
from luminal.program.quantities import Quantities
from luminal.runtime.output_pool import block_bytes

NAMED = 3  # values that an error names
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
        """The words of an error that say how large the arena is, its largest values, and which
        kernels make them.
        """
        makers = dict(_makers(self._program, self._program.launches))
        pairs = zip(placement.sizes, self.plan.buffers, strict=True)
        largest = sorted(pairs, reverse=True)[:NAMED]
        rows = []
        for size, number in largest:
            buffer = self._program.buffers[number]
            shape = ", ".join(map(str, buffer.shape))
            maker = f" of {makers[number]!r}" if number in makers else ""
            rows.append(f"{buffer.dtype.short}[{shape}]{maker} ({_told(size)})")
        return (
            f"the arena of a run takes {_told(placement.arena_bytes)}, most of it {', '.join(rows)}"
            "; smaller inputs, fewer of them at a time, or memory_limit= for a training step"
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


def _makers(program: Program, launches: Sequence[Launch]) -> Iterator[tuple[int, str]]:
    """Buffers that kernels write, with what the kernels compute."""
    for launch in launches:
        if isinstance(launch, LoopLaunch):
            yield from _makers(program, launch.body)
            continue
        for operand, role in zip(launch.operands, program.roles(launch), strict=True):
            if role is not Role.IN:
                yield program.table[operand.entry], launch.label


def _told(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.1f} MiB"
