"""Which results are stored past the caches.

A store to a line that no cache holds reads the line first, and a result larger than the last cache
pushes out what others would read again, to be read from memory itself. So what is larger, and is
written line by line, goes to memory at once (`Buffer.non_temporal`): a third less is moved by what
reads as much as it writes. Where much is computed for each line that hides in the time, and stores
by quarters of a line, which arrays of others ask for, do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from luminal.kernel.tile_ir import NESTED, Kernel, Loop, Map, Role, Statement, Store
from luminal.schedule.vectors.costs import WEIGHTS
from luminal.schedule.vectors.vector_target import VectorTarget
from luminal.shape.expression import ONE, TRUE

LIGHT = 20  # operations for an element that take less time than moving it


# "Light" because a stream of stores has to hide nothing: where much is computed for each line the
# plain store is hidden anyway, and stores that are not aligned cost more past the caches.
def with_non_temporal_stores(kernel: Kernel, target: VectorTarget) -> Kernel:
    """The kernel, with the results that it stores past the caches marked."""
    if not target.stores_past_caches:
        return kernel
    large = {
        buffer.name
        for buffer in kernel.buffers
        if buffer.role is Role.OUT
        and buffer.size.interval.at_least(target.l3_bytes // buffer.dtype.size)
    }
    if not large:
        return kernel
    by_lines: dict[str, bool] = {}
    for store, loops in _stores(kernel.body, ()):
        if store.buffer in large:
            by_lines[store.buffer] = by_lines.get(store.buffer, True) and _is_by_lines(store, loops)
    buffers = (
        replace(operand, non_temporal=by_lines.get(operand.name, False))
        for operand in kernel.buffers
    )
    return replace(kernel, buffers=tuple(buffers))


def _stores(
    body: Sequence[Statement], loops: tuple[Loop, ...]
) -> Iterator[tuple[Store, tuple[Loop, ...]]]:
    """All stores, each with the loops around it."""
    for statement in body:
        if isinstance(statement, Store):
            yield statement, loops
        elif isinstance(statement, Loop):
            yield from _stores(statement.body, (*loops, statement))
        elif isinstance(statement, NESTED):
            yield from _stores(statement.body, loops)


def _is_by_lines(store: Store, loops: Sequence[Loop]) -> bool:
    """Does the innermost loop, the only tile and of little work, write vectors of neighbours?"""
    if not loops or store.guard is not TRUE or store.indices or store.add:
        return False
    *outer, inner = loops
    step = store.offset.substitute({inner.axis: inner.axis + 1}) - store.offset
    work = sum(WEIGHTS.of(statement.op) for statement in inner.body if isinstance(statement, Map))
    is_row = inner.vector > 1 and step is ONE and all(loop.tile == 1 for loop in outer)
    return is_row and work <= LIGHT
