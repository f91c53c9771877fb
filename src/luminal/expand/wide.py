"""Accesses side by side made one: a lane's loads and stores of 16 bytes.

Elements, or words of neighbours, that a lane touches one by one, at distances that follow each
other from one address, under one mask, are one Load or Store of a vector if the first of them
surely lies at a multiple of their number; all buffers start at multiples of 16 bytes but those that
are said not to. What follows takes the elements out of the vector.

Buffers under different names never hand each other values within a kernel, so only what touches the
same one keeps accesses in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from luminal.base.dtypes import bool_, int32
from luminal.expand.builder import integer
from luminal.expand.ir import (
    Apply,
    Constant,
    Exchange,
    If,
    Kernel,
    Load,
    LoadMatrix,
    LoadSums,
    Loop,
    Multiply,
    MultiplyLeft,
    Operand,
    Statement,
    Store,
    Type,
    Value,
)
from luminal.expand.zeros import Zeros
from luminal.memory.alignment import ACCESS

Access = Load | Store
Key = tuple[str, Type, Operand, Operand | None]
"""The buffer, the type, the address and the mask that accesses share."""
Group = dict[int, int]
"""Accesses by distance, as their numbers in a body."""


def widened(kernel: Kernel) -> Kernel:
    """The kernel with wide accesses where they are proved."""
    return _Widening(kernel).kernel()


def fresh_values(kernel: Kernel) -> Iterator[int]:
    """Numbers of values that the kernel has not."""
    ids = [out.id for statement in kernel.statements() for out in _defined(statement)]
    numbers = (kernel.chunk, kernel.lane, kernel.begin, *(param.value for param in kernel.params))
    return count(max([*ids, *(value.id for value in numbers if value is not None)]) + 1)


class _Widening:
    def __init__(self, kernel: Kernel) -> None:
        self.source = kernel
        self.zeros = Zeros()
        within = (*(scratch.buffer for scratch in kernel.scratch), *kernel.shared)
        self.aligned = {b.name for b in (*kernel.buffers, *within) if b.is_aligned}
        self.fresh = fresh_values(kernel)

    def kernel(self) -> Kernel:
        for statement in self.source.setup:
            assert isinstance(statement, Apply)
            self.zeros.note(statement)
        return replace(self.source, body=self.body(self.source.body))

    def body(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        """A body and all inside of it."""
        inside: list[Statement] = []
        for statement in body:
            if isinstance(statement, Apply):
                self.zeros.note(statement)
            elif isinstance(statement, Loop):
                self.zeros.enter(statement)
                statement = replace(statement, body=self.body(statement.body))
            elif isinstance(statement, If):
                statement = replace(statement, body=self.body(statement.body))
            inside.append(statement)
        instead: dict[int, list[Statement]] = {}
        for key, group in _groups(inside, self.is_element):
            for run in self.runs(key, group):
                instead |= self.joined(inside, run)
        return tuple(
            following
            for number, statement in enumerate(inside)
            for following in instead.get(number, (statement,))
        )

    def runs(self, key: Key, group: Group) -> Iterator[list[int]]:
        """The accesses of a group that are one each, by their numbers in the order of memory."""
        _, type_, address, _ = key
        width = min(ACCESS // type_.dtype.size, 1 << self.zeros.of(address))
        left = dict(group)
        while width > 1:
            for first in sorted(left):
                places = range(first, first + width)
                if first % width == 0 and left.keys() >= {*places}:
                    yield [left.pop(place) for place in places]
            width //= 2

    def is_element(self, buffer: str, value: Operand) -> bool:
        """Is it an element of an aligned buffer, or a word of several, and no vector?"""
        return value.type.lanes == 1 and buffer in self.aligned

    def joined(self, body: Sequence[Statement], run: Sequence[int]) -> dict[int, list[Statement]]:
        """What stands for each of these accesses: a load at the first, a store at the last."""
        parts = [body[number] for number in run]
        loads = [part for part in parts if isinstance(part, Load)]
        stores = [part for part in parts if isinstance(part, Store)]
        where, mask = self.mask(loads[0] if loads else stores[0], len(run))
        if loads:
            whole = self.value(Type(loads[0].out.type.dtype, len(run)))
            wide = replace(loads[0], out=whole, mask=mask, is_aligned=True)
            instead: dict[int, list[Statement]] = {
                number: [Apply(part.out, "extract", (whole, integer(k)))]
                for k, (number, part) in enumerate(zip(run, loads, strict=True))
            }
            first = min(run)
            return instead | {first: [*where, wide, *instead[first]]}
        before, value = self.vector([store.value for store in stores])
        wide_store = replace(stores[0], value=value, mask=mask, is_aligned=True)
        return {number: [] for number in run} | {max(run): [*where, *before, wide_store]}

    def value(self, type_: Type) -> Value:
        return Value(next(self.fresh), type_)

    def mask(self, access: Access, lanes: int) -> tuple[list[Statement], Operand | None]:
        """The access's mask for all lanes of a vector, and what makes it."""
        if access.mask is None:
            return [], None
        mask = self.value(Type(bool_, lanes))
        return [Apply(mask, "splat", (access.mask,))], mask

    def vector(self, parts: Sequence[Operand]) -> tuple[list[Statement], Operand]:
        """Scalars as the vector of them, and what makes it: by two, then by four ..."""
        inserts: list[Statement] = []
        while len(parts) > 1:
            lanes = 2 * parts[0].type.lanes
            order = Constant(Type(int32, lanes), np.arange(lanes, dtype=np.int32).tobytes())
            pairs = [*zip(parts[::2], parts[1::2], strict=True)]
            outs = [self.value(Type(parts[0].type.dtype, lanes)) for _ in pairs]
            inserts += [
                Apply(out, "shuffle", (x, y, order))
                for out, (x, y) in zip(outs, pairs, strict=True)
            ]
            parts = outs
        return inserts, parts[0]


def _groups(
    body: Sequence[Statement], is_element: Callable[[str, Operand], bool]
) -> Iterator[tuple[Key, Group]]:
    """Accesses of elements of a body that may be joined: nothing between them touches their buffer
    so that it would matter.
    """
    loads: dict[Key, Group] = {}
    stores: dict[Key, Group] = {}
    for number, statement in enumerate(body):
        match statement:
            case Apply() | Exchange():
                continue
            case Load(out, buffer, address, mask, distance) if is_element(buffer, out):
                yield from _taken(stores, buffer)
                loads.setdefault((buffer, out.type, address, mask), {}).setdefault(distance, number)
            case Store(buffer, address, value, mask, distance) if is_element(buffer, value):
                key = buffer, value.type, address, mask
                yield from _taken(loads, buffer)
                is_again = distance in stores.get(key, ())
                yield from _taken(stores, buffer, None if is_again else key)
                stores.setdefault(key, {})[distance] = number
            case _:
                yield from _taken(loads)
                yield from _taken(stores)
    yield from _taken(loads)
    yield from _taken(stores)


def _taken(
    groups: dict[Key, Group], buffer: str | None = None, but: Key | None = None
) -> Iterator[tuple[Key, Group]]:
    """Takes out the groups of a buffer, or all, but one."""
    for key in [key for key in groups if buffer in (None, key[0]) and key != but]:
        yield key, groups.pop(key)


def _defined(statement: Statement) -> Iterator[Value]:
    """The values that a statement defines, but for those of statements inside."""
    match statement:
        case Loop(index, _, _, _, carries):
            yield index
            for carry in carries:
                yield from (carry.inner, carry.result)
        case If(_, choices):
            yield from (choice.result for choice in choices)
        case Apply(out) | Load(out) | Exchange(out):
            yield out
        case Multiply(outs) | MultiplyLeft(outs) | LoadMatrix(outs) | LoadSums(outs):
            yield from outs
