"""What is held outside of graphs: how it lies in memory, and which part of it is here."""

from __future__ import annotations

import itertools
import math
import weakref
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self, TypeVar, cast

import numpy as np

from luminal.base.complex_dtypes import ComplexDType
from luminal.base.dtypes import DType
from luminal.base.errors import ShapeError
from luminal.memory.arrays import Array, B, Buffer, MemorySpace
from luminal.memory.as_tensor import AsTensor
from luminal.memory.data import any_array_of
from luminal.memory.part import Part
from luminal.memory.row_order import Interleaved, PairsOf
from luminal.memory.stored import stored_or_array

A = TypeVar("A")
ids = itertools.count()
"""Numbers of Parameters and States: runs take their locks in this order."""


def literal_shape(what: str, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape as ints. Raises ShapeError, which names `what`, for anything else."""
    if isinstance(shape, int) or not all(isinstance(n, int | np.integer) and n >= 0 for n in shape):
        raise ShapeError(f"{what}: shape {shape!r} is not a tuple of ints >= 0")
    return tuple(int(n) for n in shape)


def order_of(dtype: DType | ComplexDType) -> PairsOf | None:
    """How a new array of the dtype lies, where that is not as in the value."""
    return PairsOf(dtype) if isinstance(dtype, ComplexDType) else None


def checked(
    what: str, array: Any, shape: tuple[int, ...], dtype: DType, part: Part | None = None
) -> Array:
    """`array` as an ndarray of this very shape and dtype; where it is going to be cut, what lies in
    a file stays there.
    """
    if part is None:
        fitting = any_array_of(array, dtype, what)
    else:
        fitting = cast(Array, stored_or_array(array, dtype, what))
    if fitting.shape != shape:
        raise ShapeError(f"{what}: expected shape {shape}, got {fitting.shape}")
    return fitting


class Held(AsTensor):
    """An array that lives outside of graphs, in memory of a device or in parts of a mesh."""

    spec: tuple[tuple[str, ...], ...] | None = None
    """The mesh axes that cut each dimension (`lm.shard`); None: every rank has the whole."""
    slots_spec: tuple[tuple[str, ...], ...] | None = None
    """Of a Parameter that is trained: how its moments are cut, where that is not as it is."""
    undecided: Any = None
    """Of a Parameter whose plan is not chosen yet (`lm.shard(model, "auto", mesh)`): what waits."""
    part: Part | None = None
    """From the first program on a mesh that cuts it: what this rank holds."""
    spread: Any = None
    """Of a rank's part on a mesh whose ranks are all in this process: what has all of them."""
    order: Interleaved | PairsOf | None = None
    """How it lies in memory, where that is not as in the value. Programs read the memory."""
    readers: weakref.WeakSet[Any] | None = None
    """Recorders whose values keep to the time when they were recorded, and which read this."""

    @property
    def memory_type(self) -> tuple[tuple[int, ...], DType]:
        """The shape and dtype of what lies in memory: of complex numbers (..., 2) of floats."""
        if isinstance(self.dtype, ComplexDType):
            return (*self.shape, 2), self.dtype.real
        return self.shape, self.dtype

    def as_it_lies(self, value: Any) -> Any:
        """An Array or a Tensor of a value as memory holds it: the inverse of `in_order`."""
        return value if self.order is None else self.order.rows(value)

    def read_by(self, graph: Any) -> None:
        """From now on the graph hears (`changes`) before the array is set."""
        if self.readers is None:
            self.readers = weakref.WeakSet()
        self.readers.add(graph)

    def about_to_change(self) -> None:
        """Is called before the array gets another value."""
        for graph in tuple(self.readers or ()):
            graph.changes(self)

    def upcoming(self) -> Array:
        """The value, or what layers have noted for it since the last step of a loop as in PyTorch
        (running statistics).
        """
        values = (graph.upcoming(self) for graph in tuple(self.readers or ()))
        return next((value for value in values if value is not None), self.numpy())

    def in_order(self, rows: A) -> A:
        """An Array or a Tensor that lies as the memory does, in the order of the value."""
        return rows if self.order is None else cast(A, self.order.value(rows))

    @abstractmethod
    def numpy(self) -> Array:
        """A copy of the current value, or the value itself."""

    def local(self) -> Array:
        """What this rank has of the value: its part where that is cut over a mesh, else all."""
        self._take_back()
        return self.numpy() if self.part is None else self.part.holder.numpy()[self.part.real]

    def whole(self) -> Array:
        """The value, also where it is cut over a mesh: then all ranks must ask for it."""
        self._take_back()
        return self.numpy() if self.part is None else self.part.join(self.part.holder.numpy())

    def _take_back(self) -> None:
        """Makes the value one array again, where all of its parts are in this process."""
        if (part := self.part) is not None and part.is_here:
            value = part.join(part.holder.numpy())
            value.flags.writeable = False  # it is nobody else's, so it need not be copied
            self.part = None
            self._hold(value)

    @abstractmethod
    def _hold(self, value: Array) -> None:
        """Has the value, which it had before, in memory of its own again."""

    def _check_whole(self) -> None:
        """Raises GraphError where the value lies in parts, of which other processes have some."""
        self._take_back()
        if self.part is not None:
            raise self.part.refuse(self.name)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def dim(self) -> int:
        """The number of dimensions, as torch.Tensor.dim."""
        return len(self.shape)

    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the extent of one dim; IndexError beyond the dims."""
        return self.shape if dim is None else self.shape[dim]

    def cpu(self) -> Self:
        """The array itself: its value needs no move to be read here."""
        return self

    @abstractmethod
    def move(self, device: Any) -> None:
        """Moves the value into the memory of a device."""

    def to(self, *targets: Any, **options: Any) -> Any:
        """Moves the value into the memory of a device ("cpu", "opencl:0"); gives itself.

        Runs bring it where they need it, so this is for room and for the time that a copy takes.
        In a graph, asked for anything else than a device: the value's `to`.
        Raises InputError for a device that cannot be used, MemoryError.
        """
        kind = str(targets[0]).partition(":")[0] if targets else ""
        value = None if kind in ("auto", *MemorySpace.names) else self.value_here()
        if value is not None:
            return value.to(*targets, **options)
        self.move(*targets, **options)
        return self


def moved(held: Held, buffer: Buffer, space: MemorySpace[B]) -> B:
    """A Buffer in `space` with the value of another."""
    buffer_there = space.empty(*held.memory_type)
    buffer_there.write(buffer.array)
    return buffer_there
