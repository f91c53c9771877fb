"""A program within a limit of memory: values are computed again for gradients until it fits."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from luminal.backends.backend import Backend
from luminal.base.errors import CompileError
from luminal.base.numerics import Numerics
from luminal.compiler.compile import lower_to_program
from luminal.compiler.rematerialization import Step
from luminal.hlir.graph import Graph
from luminal.hlir.ops import Node
from luminal.program import memory_plan
from luminal.program.largest import largest
from luminal.runtime.output_pool import block_bytes


class Arena(NamedTuple):
    """The bytes of a program's arena, and what tells its largest values."""

    bytes: int
    largest: Callable[[], str]


def fitting(
    graph: Graph,
    pulled: Collection[Node],
    cotangents: Collection[Node],
    limit: int,
    arena: Callable[[Graph], Arena],
) -> Graph:
    """The graph if its `arena` is within the limit, else the one with fewest flops more that is.

    `pulled` and `cotangents` are what was recorded for derivatives (see
    `compiler.rematerialization`).
    Raises CompileError that names the least bytes found.
    """
    # Plans come from few flops to many, and each is compiled to a memory plan: an estimate of bytes
    # would not know what else is alive at the peak.
    needed = arena(graph)
    if needed.bytes <= limit:
        return graph
    step = Step.of(graph, pulled, cotangents)
    for plan in step.plans():
        candidate = step.recomputed(plan)
        least = arena(candidate)
        if least.bytes <= limit:
            return candidate
        needed = min(needed, least, key=lambda arena: arena.bytes)
    raise CompileError(
        f"memory_limit: the arena needs {needed.bytes:,} bytes, with values computed again for "
        f"gradients where that saves most; {limit:,} are allowed: allow more, make batches "
        f"smaller, or mark parts with lm.checkpoint. Its largest values: {needed.largest()}"
    )


def arena_of(graph: Graph, backend: Backend, numerics: Numerics) -> Arena:
    """The arena of `fast`'s program, with dims as large as they may be."""
    program = lower_to_program(graph, backend, numerics)
    plan = memory_plan.plan(program, program.launches)
    sizes = []
    for number in plan.buffers:
        most = program.buffers[number].bytes.interval.hi
        assert most is not None
        sizes.append(block_bytes(most))
    arena = memory_plan.place(plan, sizes).arena_bytes
    return Arena(arena, lambda: largest(program, plan, sizes))
