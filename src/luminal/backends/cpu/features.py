"""What is counted of a kernel for a model of cost that learns: its work, and how its loops are
written.
"""

from __future__ import annotations

from collections import defaultdict
from math import prod

from luminal.backends.cpu.core import Core
from luminal.backends.cpu.work import Work
from luminal.kernel.tile_ir import Kernel, Load, Loop, Store, Tile, every_statement
from luminal.shape.expression import Symbol


def of(kernel: Kernel, counted: Work, core: Core) -> dict[str, float]:
    """The counts of one launch by name: cycles and bytes of all chunks together, and the shape of
    the widest loop.
    """
    return {
        "cycles": counted.cycles,
        "cycles of the longest chunk": counted.longest,
        "bytes into the first cache": counted.into_first,
        "bytes into the second cache": counted.into_second,
        "bytes into the third cache": counted.into_third,
        "chunks": float(counted.chunks),
        **_of_loops(kernel, core),
    }


def _of_loops(kernel: Kernel, core: Core) -> dict[str, float]:
    statements = [*every_statement(kernel.body)]
    loops = [statement for statement in statements if isinstance(statement, Loop)]
    unroll: defaultdict[Symbol, int] = defaultdict(lambda: 1)
    vector: defaultdict[Symbol, int] = defaultdict(lambda: 1)
    for loop in loops:
        unroll[loop.axis], vector[loop.axis] = loop.unroll, loop.vector

    def registers(tile: Tile) -> float:
        bits = 8 * tile.dtype.size * prod(vector[axis] for axis in tile.axes)
        rows = prod(unroll[axis] for axis in tile.axes)
        return float(rows * max(1, -(-bits // core.target.vector_bits)))

    carried = [sum(registers(carry.inner) for carry in loop.carries) for loop in loops]
    return {
        "loops": float(len(loops)),
        "statements": float(len(statements)),
        "loads": sum(registers(s.out) for s in statements if isinstance(s, Load)),
        "stores": sum(registers(s.value) for s in statements if isinstance(s, Store)),
        "lanes of a vector": float(max(vector.values(), default=1)),
        "accumulators": max(carried, default=0.0),
        "positions of a step": float(max((loop.tile for loop in loops), default=1)),
        "arrays of its own": float(len(kernel.scratch)),
    }
