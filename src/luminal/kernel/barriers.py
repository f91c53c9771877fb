"""Barriers: where a kernel by groups has its lanes wait for each other.

Lanes run apart from barrier to barrier. So one stands before whatever reads an element of working
memory that another lane may have written since the last one, or writes what another may still read
or have written. Buffers are looked at whole; a statement of loops waits before them, not in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field, replace

from luminal.base.records import dataclass
from luminal.kernel.tile_ir import (
    NESTED,
    Barrier,
    Binding,
    Kernel,
    Load,
    Loop,
    Reduce,
    Role,
    Space,
    Statement,
    Store,
)

MEET = Barrier(Binding.GROUP)


def with_barriers(kernel: Kernel) -> Kernel:
    """The kernel with the barriers that it lacks; as it is, if it has no groups."""
    if kernel.lanes == 1:
        return kernel
    watched = _watched(kernel)
    if not watched:
        return kernel
    # A worker does one chunk after another: the body is a loop.
    return replace(kernel, body=_Writer(watched).repeated(kernel.body, _Since()))


def _watched(kernel: Kernel) -> frozenset[str]:
    """The buffers through which lanes may learn of each other."""
    loaded = {part.buffer for part in kernel.statements() if isinstance(part, Load)}
    working = {part.name for part in kernel.scratch}
    # What a kernel gives and reads again may have been written by another lane. Operands are
    # written by nobody.
    results = {part.name for part in kernel.buffers if part.role is Role.OUT}
    return frozenset(loaded & (working | results))


@dataclass
class _Since:
    """What was touched since the last barrier: buffers read, and those written with the stores."""

    read: set[str] = field(default_factory=set)
    written: dict[str, set[int]] = field(default_factory=dict)

    def copy(self) -> _Since:
        return _Since(set(self.read), {name: set(ids) for name, ids in self.written.items()})

    def add(self, other: _Since) -> None:
        self.read |= other.read
        for name, stores in other.written.items():
            self.written.setdefault(name, set()).update(stores)

    def meets(self, then: _Since) -> bool:
        """Must lanes wait between the two? One store writes an element in one lane only."""
        if not self.written.keys().isdisjoint(then.read):
            return True
        if not self.read.isdisjoint(then.written):
            return True
        both = self.written.keys() & then.written.keys()
        return any(self.written[name] != then.written[name] for name in both)


class _Writer:
    def __init__(self, watched: frozenset[str]) -> None:
        self.watched = watched

    def repeated(self, body: tuple[Statement, ...], since: _Since) -> tuple[Statement, ...]:
        """A body that runs again and again, after what was touched before it."""
        around = since.copy()
        # The body is walked twice: what its last statements touch stands before its first ones in
        # the next turn.
        self.block(body, around)  # what is left at its end comes before its start
        since.add(around)
        return self.block(body, since)

    def block(self, body: tuple[Statement, ...], since: _Since) -> tuple[Statement, ...]:
        """The body with barriers; `since` is brought up to the end of it."""
        statements: list[Statement] = []
        for statement in body:
            if isinstance(statement, Barrier):
                since.read.clear()
                since.written.clear()
            else:
                touched = self.touched(statement)
                if since.meets(touched):
                    statements.append(MEET)
                    since.read.clear()
                    since.written.clear()
                if isinstance(statement, NESTED) and (touched.read or touched.written):
                    inside = self.repeated if isinstance(statement, Loop) else self.block
                    statement = replace(statement, body=inside(statement.body, since))
                else:
                    since.add(touched)
            statements.append(statement)
        return tuple(statements)

    def touched(self, statement: Statement) -> _Since:
        """The buffers that a statement and all inside of it read and write."""
        touched = _Since()
        for inner in _all((statement,)):
            if isinstance(inner, Load) and inner.buffer in self.watched:
                touched.read.add(inner.buffer)
            elif isinstance(inner, Store) and inner.buffer in self.watched:
                touched.written.setdefault(inner.buffer, set()).add(id(inner))
                if inner.add:
                    touched.read.add(inner.buffer)
        return touched


def _all(body: Iterable[Statement]) -> Iterator[Statement]:
    for statement in body:
        yield statement
        if isinstance(statement, NESTED):
            yield from _all(statement.body)


def in_shared_memory(kernel: Kernel, most: int) -> Kernel:
    """The kernel with as much of its working memory in the group's own as `most` bytes hold."""
    if kernel.lanes == 1:
        return kernel
    scratch = []
    for buffer in kernel.scratch:
        size = buffer.size.constant * buffer.dtype.size if buffer.size.is_const else most + 1
        # Buffers in their order, as long as there is room. A size that the dims decide is not known
        # when the kernel is compiled, which is when shared memory is laid out.
        if 0 < size <= most and buffer.space is not Space.TENSOR:
            most -= size
            buffer = replace(buffer, space=Space.SHARED)
        scratch.append(buffer)
    return replace(kernel, scratch=tuple(scratch))


def exchanging(kernel: Kernel, subgroup: int) -> Kernel:
    """The kernel with so many lanes that exchange what they fold, if it folds over lanes and its
    groups consist of such rows.
    """
    loops = (statement for statement in kernel.statements() if isinstance(statement, Loop))
    dealt = {loop.axis for loop in loops if loop.lanes.count > 1}
    folds = (statement for statement in kernel.statements() if isinstance(statement, Reduce))
    # Only whole rows can exchange: lanes of a row that is not full would read from lanes that are
    # not there.
    if kernel.lanes % subgroup or not any(fold.axis in dealt for fold in folds):
        return kernel
    return replace(kernel, subgroup=subgroup)
