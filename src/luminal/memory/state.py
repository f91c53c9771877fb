"""State: a tensor that runs read and assign; what is held and assigned moves to where runs are.

State and Parameter outlive graphs and executables, and are shared by them. Each holds a Buffer of a
device. A run there takes the value over where it lies elsewhere: it moves, and there is never a
second one that could be stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from luminal.base import dtypes, forks
from luminal.base.complex_dtypes import any_dtype_of
from luminal.base.dtypes import DType
from luminal.memory import dlpack
from luminal.memory.arrays import (
    Array,
    B,
    Buffer,
    HostBuffer,
    MemorySpace,
    aligned_empty,
    aligned_zeros,
)
from luminal.memory.data import any_array_of
from luminal.memory.held import Held, checked, ids, literal_shape, moved, order_of
from luminal.memory.parameter import Parameter


# A State lies where it last ran, and there is no second one that could be stale: a run on another
# device takes it from there. Copying it before each run, so that a run that fails could restore it,
# would cost as much as a key-value cache is large.
class State(Held):
    """A tensor that graphs read at the start of a run and assign for its end (a KV cache).

    It owns its buffer outside every executable; those whose graphs use it share it. A run holds its
    lock, so `numpy`, `set` and `reset` wait for a run in progress. The value lies on the device of
    the last run. `shape`: ints; `init`: the value that `reset` restores, a scalar or an array of
    the shape.
    """

    persistent = True  # is it part of a module's state_dict?
    follows: Parameter | None = None  # the Parameter whose moment it is, which says how it is cut

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any = dtypes.float32,
        init: Any = 0,
        name: str | None = None,
    ) -> None:
        self.id = next(ids)
        self.name = name or f"state{self.id}"
        self.dtype = any_dtype_of(dtype)
        self.order = order_of(self.dtype)
        self.shape = literal_shape(self.name, shape)
        self._init = self._first(init)
        self.lock = forks.rlock()  # runs take the locks of their states in id order
        # Both are replaced only under the lock.
        self.buffer: Buffer = HostBuffer(aligned_zeros(*self.memory_type))
        self.spare: Buffer | None = None  # made by runs that cannot update in place
        if self._init.ndim or any(self._init.tobytes()):
            self.reset()

    @property
    def _type(self) -> tuple[tuple[int, ...], Any]:
        return self.shape, self.dtype

    def _first(self, init: Any) -> Array:
        first = any_array_of(init, self.dtype, f"{self.name}: init")
        return first if first.ndim == 0 else checked(self.name, first, *self._type).copy()

    def on(self, space: MemorySpace[B]) -> B:
        """The State's buffer in a device's memory, where the value is moved first if it lies
        elsewhere.
        """
        self._check_whole()
        buffer: Any = self.buffer
        if buffer.space is not space:
            buffer.settle()
            self.buffer = buffer = moved(self, self.buffer, space)
            self.spare = None
        return buffer  # type: ignore[no-any-return]

    def move(self, device: Any) -> None:
        with self.lock:
            self.on(MemorySpace.by_name(device))

    def numpy(self) -> Array:
        """A copy of the current value; GraphError for one that is cut over processes."""
        return self.in_order(self.memory_now())

    def memory_now(self) -> Array:
        """A copy of the current value, as it lies."""
        self._check_whole()
        with self.lock:
            self.buffer.settle()
            return self.buffer.copy()

    def set(self, value: Any) -> None:
        """Replaces the value; if it does not fit, ShapeError or DTypeError and no change."""
        array = checked(self.name, value, *self._type, self.part)
        if self.part is not None and not self.part.is_here:
            self.part.holder.set(self.part.cut(array))
            return
        self.about_to_change()
        with self.lock:
            self.part = None
            self.buffer.settle()
            if self.buffer.nbytes != array.nbytes:  # it was let go
                self.buffer = HostBuffer(aligned_empty(*self.memory_type))
            self.buffer.write(self.as_it_lies(array))

    def _hold(self, value: Array) -> None:
        with self.lock:
            self.buffer = HostBuffer(aligned_empty(*self.memory_type))
            self.buffer.write(self.as_it_lies(value))

    def reset(self) -> None:
        """Restores the initial value."""
        if self.part is not None:  # which writes parts, or all
            self.set(np.broadcast_to(self._init, self.shape))
            return
        self.about_to_change()
        with self.lock:
            self.buffer.settle()
            self.buffer.write(self.as_it_lies(self._init))

    def release(self) -> None:
        """Lets go of the memory: the value is elsewhere now, in parts."""
        with self.lock:
            self.buffer.settle()
            self.buffer, self.spare = HostBuffer(aligned_empty((0,), self.memory_type[1])), None

    def rounded(self, dtype: DType) -> State:
        """A State of its own with the value, and the initial one, rounded to `dtype`."""
        copy = State(self.shape, dtype, dtype.rounded(self._init), self.name)
        copy.set(dtype.rounded(self.numpy()))
        copy.persistent = self.persistent
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied or pickled it makes a State of its own with the same value, on the host."""
        held = self.shape, self.dtype, self._init, self.name
        return _state_of, (*held, self.numpy(), self.persistent)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.numpy(), dtype)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:  # fmt: skip
        with self.lock:
            self.buffer.settle()
            return dlpack.snapshot_of(
                self.in_order(self.buffer.array),
                stream=stream,
                max_version=max_version,
                dl_device=dl_device,
                copy=copy,
            )

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU, 0

    def __repr__(self) -> str:
        return f"State({self.name}: {self.dtype.short}{list(self.shape)})"


Assignable: TypeAlias = State | Parameter


def _state_of(
    shape: tuple[int, ...], dtype: DType, init: Array, name: str, value: Array, persistent: bool
) -> State:
    state = State(shape, dtype, init, name)
    state.set(value)
    state.persistent = persistent
    return state


def spare_on(held: Assignable, space: MemorySpace[B]) -> B:
    """The State's second buffer, made at first use; the value is on that device."""
    spare: Any = held.spare
    if spare is None or spare.space is not space:
        held.spare = spare = space.empty(*held.memory_type)
    return spare  # type: ignore[no-any-return]


def exchange(held: Assignable, space: MemorySpace[Any]) -> None:
    """After a run there that wrote the second buffer: that is the value now."""
    held.buffer, held.spare = spare_on(held, space), held.buffer
