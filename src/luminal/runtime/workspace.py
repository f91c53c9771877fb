"""Where all that a run needs lies in its block of the device, the workspace.

What the host gives comes first, then what it takes, so that one copy brings each. Sizes are those
of classes: dims that grow (a decoder's `past`) seldom need another layout.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from luminal.memory.arrays import Array
from luminal.program.memory_plan import Placement
from luminal.runtime.output_pool import block_bytes

ALIGNMENT = 256  # bytes, of what begins in a workspace: as blocks of drivers do
_serials = itertools.count()
STAGED = 4 << 20  # bytes of an array that goes by way of staging; a larger one goes by itself


class Part(NamedTuple):
    """An array of the caller's: its number, its buffer's, and its place among those staged."""

    array: int
    buffer: int
    start: int


class Layout(NamedTuple):
    """Offsets in bytes from the workspace's start, by buffer where there are several.

    Integers and the inputs that are staged are the first `sent` bytes; the outputs that are staged
    are the `taken` bytes that begin there. What is large is in neither.
    """

    offsets: dict[int, int]
    sent: int
    taken: int
    inputs: tuple[Part, ...]
    outputs: tuple[Part, ...]
    large_inputs: tuple[Part, ...]
    large_outputs: tuple[Part, ...]
    scratch: int  # at the end: it is as large as dims make it
    serial: int  # no other layout of this process has it


class Plan(NamedTuple):
    """The buffers that a layout places: inputs and outputs as (buffer, array), hidden outputs,
    those of the arena; and the bytes of integers.
    """

    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]
    hidden: tuple[int, ...]
    arena: tuple[int, ...]
    integers: int


def lay_out(plan: Plan, placement: Placement, sizes: Mapping[int, int]) -> Layout:
    """The layout where buffers have these sizes, which are of classes, by number."""
    offsets: dict[int, int] = {}
    end = aligned(plan.integers)

    def placed(pairs: Sequence[tuple[int, int]], base: int) -> tuple[Part, ...]:
        nonlocal end
        parts = []
        for buffer, array in pairs:
            parts.append(Part(array, buffer, end - base))
            offsets[buffer] = end
            end = aligned(end + sizes[buffer])
        return tuple(parts)

    inputs = placed([pair for pair in plan.inputs if sizes[pair[0]] <= STAGED], 0)
    sent = end
    outputs = placed([pair for pair in plan.outputs if sizes[pair[0]] <= STAGED], sent)
    taken = end - sent
    large_inputs = placed([pair for pair in plan.inputs if sizes[pair[0]] > STAGED], 0)
    large_outputs = placed([pair for pair in plan.outputs if sizes[pair[0]] > STAGED], 0)
    placed([(buffer, -1) for buffer in plan.hidden], 0)
    for buffer, offset in zip(plan.arena, placement.offsets, strict=True):
        offsets[buffer] = end + offset
    scratch = aligned(end + placement.arena_bytes)
    return Layout(
        offsets, sent, taken, inputs, outputs, large_inputs, large_outputs,
        scratch, next(_serials),
    )  # fmt: skip


def classes(values: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes of buffers, which are quantities of these numbers, rounded up to their classes."""
    return tuple([block_bytes(values[number]) for number in sizes])


def part_of(staged: Array, part: Part, like: Array) -> Array:
    """The bytes of an array among those staged, as that array."""
    stop = part.start + like.nbytes
    return staged[part.start : stop].view(like.dtype).reshape(like.shape)


def aligned(size: int) -> int:
    """The next multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT
