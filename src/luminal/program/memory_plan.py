"""Where the temporary buffers of a launch list lie: lifetimes, then offsets in one arena.

Lifetimes count *barrier epochs*, not launches: between two barriers workers run skewed, so buffers
used in one epoch never share memory. A Loop is one epoch of the list around it. What lives only
inside its body, written anew in each iteration, has epochs of that body; everything else that the
body touches lives through the whole Loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.base.records import dataclass
from luminal.kernel.tile_ir import Role
from luminal.memory.alignment import ALIGNMENT
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import (
    CollectiveLaunch,
    KernelLaunch,
    Launch,
    LoopLaunch,
    Program,
    barriers,
    walk,
)

Path = tuple[int, ...]
"""The Loops around a launch: the epoch of each in the list that it stands in."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The epochs `first` to `last`, both included, of the body that `loops` lead to."""

    loops: Path
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Can both buffers hold data at one time?"""
        # A Loop ends its epoch, so no two of them share one: equal numbers are the same Loop.
        for mine, theirs in zip(self.loops, other.loops, strict=False):
            if mine != theirs:
                return False
        depth = min(len(self.loops), len(other.loops))
        first, last = self._at(depth)
        other_first, other_last = other._at(depth)
        return first <= other_last and other_first <= last

    def _at(self, depth: int) -> tuple[int, int]:
        """The epochs as the list at this depth sees them."""
        if depth < len(self.loops):
            return self.loops[depth], self.loops[depth]
        return self.first, self.last


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Arena buffers of a launch list, by id, with their lifetimes; `conflicts[i, j]`: overlap.
    `rows`: places of buffers that lie side by side, in their order.
    """

    buffers: tuple[int, ...]
    lifetimes: tuple[Lifetime, ...]
    conflicts: NDArray[np.bool_]
    rows: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """Offsets in bytes, multiples of 64, of a plan's buffers, for buffers of `sizes` bytes."""

    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    arena_bytes: int


@dataclass(frozen=True, slots=True)
class _Use:
    """One access of a buffer, in the order of the list."""

    loops: Path
    epoch: int
    role: Role
    moves: bool  # with a Loop's iterations: it is part of a stream or a carried value


def plan(program: Program, launches: tuple[Launch, ...]) -> MemoryPlan:
    """The lifetimes of all ARENA buffers that `launches` touch."""
    kinds = {buffer.id: buffer.kind for buffer in program.buffers}
    uses: dict[int, list[_Use]] = {}
    for buffer, use in _uses(program, launches, ()):
        if kinds[buffer] is BufferKind.ARENA:
            uses.setdefault(buffer, []).append(use)
    lifetimes = tuple(_lifetime(buffer_uses) for buffer_uses in uses.values())
    return MemoryPlan(tuple(uses), lifetimes, conflicts(lifetimes), _rows(program, launches, uses))


def _rows(
    program: Program, launches: tuple[Launch, ...], buffers: Iterable[int]
) -> tuple[tuple[int, ...], ...]:
    """The places of what buckets of collectives send and receive, each row once."""
    places = {buffer: place for place, buffer in enumerate(buffers)}
    rows: dict[tuple[int, ...], None] = {}
    for launch in walk(launches):
        if isinstance(launch, CollectiveLaunch) and launch.members > 1:
            for half in (launch.operands[: launch.members], launch.operands[launch.members :]):
                for turn in range(half[0].modulus):  # members take turns together
                    row = (program.table[o.entry + turn] for o in half)
                    rows[tuple(places[number] for number in row)] = None
    return tuple(rows)


def conflicts(lifetimes: Sequence[Lifetime]) -> NDArray[np.bool_]:
    """`Lifetime.overlaps` of all pairs: an interval per depth, unbounded inside of its body."""
    # All pairs at once, since a long program has thousands of buffers and millions of pairs: each
    # depth of nesting is one comparison of intervals, and two buffers conflict where all depths
    # meet.
    depth = 1 + max((len(lifetime.loops) for lifetime in lifetimes), default=0)
    first = np.full((depth, len(lifetimes)), np.iinfo(np.int64).min)
    last = np.full((depth, len(lifetimes)), np.iinfo(np.int64).max)
    for k, lifetime in enumerate(lifetimes):
        levels = len(lifetime.loops)
        first[:levels, k] = last[:levels, k] = lifetime.loops
        first[levels, k], last[levels, k] = lifetime.first, lifetime.last
    overlap = np.ones((len(lifetimes), len(lifetimes)), np.bool_)
    for low, high in zip(first, last, strict=True):
        overlap &= (low[:, None] <= high) & (low <= high[:, None])
    return overlap


def place(plan: MemoryPlan, sizes: Sequence[int]) -> Placement:
    """Best-fit greedy by size: the largest first, each into the smallest gap that holds it."""
    # Small buffers fit into what large ones leave; the other way round, gaps would be too short.
    # At the upper ends of dims without bounds there are more bytes than 64 bits count.
    kind = np.int64 if sum(sizes).bit_length() < 60 else object
    offsets: NDArray[Any] = np.zeros(len(sizes), kind)
    ends: NDArray[Any] = np.zeros(len(sizes), kind)
    placed = np.zeros(len(sizes), np.bool_)
    alone = set(range(len(sizes))).difference(*plan.rows)
    rows = [*((k,) for k in alone), *plan.rows]
    lengths = {
        row: sum(map(aligned, (sizes[k] for k in row[:-1]))) + sizes[row[-1]] for row in rows
    }
    for row in sorted(rows, key=lambda row: (-lengths[row], row)):
        met = plan.conflicts[row[0]] if len(row) == 1 else plan.conflicts[[*row]].any(axis=0)
        taken = np.flatnonzero(met & placed)
        taken = taken[np.argsort(offsets[taken], kind="stable")]
        reached = _best_gap(offsets[taken].tolist(), ends[taken].tolist(), lengths[row])
        for k in row:
            offsets[k] = reached
            ends[k] = reached = reached + aligned(sizes[k])
        placed[[*row]] = True
    arena = int(ends.max(initial=0))
    return Placement(tuple(sizes), tuple(offsets.tolist()), arena)


def aligned(size: int) -> int:
    """`size` rounded up to whole lines of memory."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _best_gap(starts: Sequence[int], ends: Sequence[int], size: int) -> int:
    """The offset at which `size` bytes fit between the taken ranges, which are sorted by their
    starts.
    """
    # The smallest gap that fits leaves the large ones to large buffers. Packing is NP-hard;
    # largest first with best fit is the usual answer.
    gaps, reached = [], 0
    for start, end in zip(starts, ends, strict=True):
        if start - reached >= size:
            gaps.append((start - reached, reached))
        # Taken ranges may overlap each other, where their values never meet.
        reached = max(reached, end)
    return min(gaps)[1] if gaps else reached


def _uses(
    program: Program, launches: tuple[Launch, ...], loops: Path
) -> Iterator[tuple[int, _Use]]:
    epoch = 0
    for launch, barrier in zip(launches, barriers(program, launches), strict=True):
        epoch += barrier
        if isinstance(launch, LoopLaunch):
            yield from _uses(program, launch.body, (*loops, epoch))
            epoch += 1  # a Loop ends with a barrier
        else:
            yield from _launch_uses(program, launch, loops, epoch)


def _launch_uses(
    program: Program, launch: KernelLaunch | CollectiveLaunch, loops: Path, epoch: int
) -> Iterator[tuple[int, _Use]]:
    for operand, role in zip(launch.operands, program.roles(launch), strict=True):
        moves = operand.modulus > 1 or operand.stride != 0
        for entry in program.entries(operand):
            yield program.table[entry], _Use(loops, epoch, role, moves)


def _lifetime(uses: list[_Use]) -> Lifetime:
    """The epochs of the innermost body that all uses share and that writes the buffer anew."""
    loops = uses[0].loops
    for use in uses:
        common = 0
        while common < min(len(loops), len(use.loops)) and loops[common] == use.loops[common]:
            common += 1
        loops = loops[:common]
    if uses[0].role is not Role.OUT or any(use.moves for use in uses):
        loops = ()  # carried from iteration to iteration
    depth = len(loops)
    epochs = [use.loops[depth] if len(use.loops) > depth else use.epoch for use in uses]
    return Lifetime(loops, min(epochs), max(epochs))
