"""What the entries of a Program's table hold in a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.base.records import dataclass
from luminal.memory.state import Assignable
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import Program
from luminal.program.memory_plan import MemoryPlan


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What the entries of a Program's table hold: (entry, which array) by kind of buffer."""

    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]
    states: tuple[tuple[int, Assignable], ...]
    following: tuple[tuple[int, Assignable], ...]
    fixed: tuple[tuple[int, int], ...]  # weights, literals, derived: (entry, buffer)
    arena: NDArray[np.int64]  # (2, n): entries, places in the memory plan
    hidden: tuple[tuple[int, int], ...]  # outputs that nobody takes: (entry, buffer)

    @classmethod
    def of(
        cls, program: Program, plan: MemoryPlan, inputs: Sequence[str], outputs: Sequence[str]
    ) -> Table:
        """The table of a program whose runs take and give arrays of these names, in order."""
        # Done once for a program: a run then writes addresses by two numbers, without looking at a
        # buffer.
        place = {name: k for k, name in enumerate(outputs)}
        taken = {o.buffer: place[o.name] for o in program.outputs if o.name in place}
        planned = {number: k for k, number in enumerate(plan.buffers)}
        by_kind: dict[BufferKind, list[tuple[int, Any]]] = {kind: [] for kind in BufferKind}
        hidden = []
        for entry in program.used_entries():
            number = program.table[entry]
            buffer = program.buffers[number]
            match buffer.kind:
                case BufferKind.INPUT:
                    by_kind[buffer.kind].append((entry, inputs.index(str(buffer.owner))))
                case BufferKind.OUTPUT if number in taken:
                    by_kind[buffer.kind].append((entry, taken[number]))
                case BufferKind.OUTPUT:
                    hidden.append((entry, number))
                case BufferKind.STATE | BufferKind.NEXT:
                    by_kind[buffer.kind].append((entry, buffer.owner))
                case BufferKind.ARENA if number in planned:
                    by_kind[buffer.kind].append((entry, planned[number]))
                case BufferKind.WEIGHT | BufferKind.CONSTANT | BufferKind.DERIVED:
                    by_kind[BufferKind.WEIGHT].append((entry, number))
        return cls(
            inputs=tuple(by_kind[BufferKind.INPUT]),
            outputs=tuple(by_kind[BufferKind.OUTPUT]),
            states=tuple(by_kind[BufferKind.STATE]),
            following=tuple(by_kind[BufferKind.NEXT]),
            fixed=tuple(by_kind[BufferKind.WEIGHT]),
            arena=np.array(by_kind[BufferKind.ARENA], np.int64).reshape(-1, 2).T,
            hidden=tuple(hidden),
        )
