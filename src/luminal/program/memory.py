"""The buffers of a program in the making, and the table through which launches see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luminal.algebra.terms import Frame, Term
from luminal.hlir.attributes import ConstantAttrs, InputAttrs, StateAttrs, WeightAttrs
from luminal.kernel.fused import Place
from luminal.kernel.layout import ROW_MAJOR, Layout
from luminal.program.buffers import Buffer, BufferKind, Owner
from luminal.program.launch_list import Operand
from luminal.program.steps import Partition
from luminal.shape.expression import Expression


class Memory:
    """Buffers and table entries, shared by the program and its Loop bodies."""

    def __init__(self) -> None:
        self.partition = Partition()
        self.owned: dict[tuple[BufferKind, Owner], int] = {}
        self.entries: dict[tuple[int, ...], int] = {}

    def buffer(
        self,
        kind: BufferKind,
        dtype: Any,
        shape: Sequence[Expression],
        owner: Owner = None,
        layout: Layout = ROW_MAJOR,
    ) -> int:
        """A new buffer; the same one for the same owner."""
        if owner is not None and (kind, owner) in self.owned:
            return self.owned[kind, owner]
        number = len(self.partition.buffers)
        self.partition.buffers.append(Buffer(number, kind, dtype, tuple(shape), layout, owner))
        if owner is not None:
            self.owned[kind, owner] = number
        return number

    def entry(self, *buffers: int) -> int:
        """Consecutive table entries for buffers; the first one's number."""
        if buffers not in self.entries:
            self.entries[buffers] = len(self.partition.table)
            self.partition.table.extend(buffers)
        return self.entries[buffers]

    def place(self, buffer: int, frame: Frame) -> Place:
        new_buffer = self.partition.buffers[buffer]
        return Place(Operand(self.entry(buffer)), new_buffer.dtype, frame, new_buffer.layout)


def owner_of(leaf: Term) -> tuple[BufferKind, Owner]:
    """The owner whose memory holds a leaf."""
    match leaf.attrs.value.node.attrs:
        case InputAttrs(name=name):
            return BufferKind.INPUT, name
        case WeightAttrs(parameter=parameter) as weight:
            return (BufferKind.STATE, parameter) if leaf.is_run else (BufferKind.WEIGHT, weight)
        case StateAttrs(state=state):
            return BufferKind.STATE, state
        case ConstantAttrs() as literal:
            return BufferKind.CONSTANT, literal
    raise AssertionError(leaf)
