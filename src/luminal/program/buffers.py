"""Buffers: the blocks of memory a Program reads and writes."""

from __future__ import annotations

import enum

from luminal.base.dtypes import DType
from luminal.base.records import dataclass
from luminal.hlir.attributes import ConstantAttrs, Shape, WeightAttrs
from luminal.kernel.layout import ROW_MAJOR, Layout
from luminal.memory.state import Assignable
from luminal.shape.expression import Expression


class BufferKind(enum.Enum):
    """Who owns a buffer."""

    INPUT = "input"  # the caller, per run
    WEIGHT = "weight"  # a Parameter
    STATE = "state"  # what the program assigns or a State; updated in place if a launch writes it
    NEXT = "next"  # a State's second buffer: the two change places after the run
    CONSTANT = "constant"  # the program: an exact literal
    DERIVED = "derived"  # the program: written by the prologue, read by runs
    OUTPUT = "output"  # the caller, handed out after the run
    ARENA = "arena"  # one run: placed by the memory plan


Owner = str | WeightAttrs | Assignable | ConstantAttrs | None


@dataclass(frozen=True, slots=True)
class Buffer:
    """One block of memory. `owner`: the input's or output's name, the weight's attributes, the
    State or the literal; None for arena and derived buffers.
    """

    id: int
    kind: BufferKind
    dtype: DType
    shape: Shape
    layout: Layout = ROW_MAJOR
    owner: Owner = None

    @property
    def size(self) -> Expression:
        """The number of elements that the buffer holds in its layout."""
        return self.layout.size(self.shape)

    @property
    def bytes(self) -> Expression:
        return self.size * self.dtype.size

    @property
    def owner_name(self) -> str:
        """The owner's name, empty where there is none."""
        return str(getattr(self.owner, "name", self.owner if isinstance(self.owner, str) else ""))

    def __str__(self) -> str:
        extents = ", ".join(map(str, self.shape))
        owner = f"{self.owner_name} " if self.owner_name else ""
        return f"b{self.id}: {self.kind.value} {owner}{self.dtype}[{extents}] {self.layout}"
