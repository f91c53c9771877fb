"""Parameter: a tensor that is set rarely, a weight, and shared by graphs and executables."""

from __future__ import annotations

import copy
import itertools
import math
import threading
import weakref
from contextlib import nullcontext
from typing import Any, Self

import numpy as np

from luminal.base import dtypes, forks
from luminal.base.complex_dtypes import any_dtype_of
from luminal.base.dtypes import DType
from luminal.base.errors import ShapeError
from luminal.base.markup import card
from luminal.memory import dlpack
from luminal.memory.arrays import HOST, Array, B, Buffer, HostBuffer, MemorySpace, aligned_empty
from luminal.memory.as_tensor import outside
from luminal.memory.data import any_array_of, shown_elements
from luminal.memory.held import Held, checked, ids, literal_shape, moved, order_of
from luminal.memory.row_order import Interleaved

MOST_SHOWN = 1 << 22
"""Elements of a Parameter whose repr shows some: it may have to decode or copy all of them."""
_versions = itertools.count(1)


# A State moves to where it runs (`state.py`); weights stay where they were set, and each device
# that reads them has one copy of each version, since several may read at one time. The version
# rises with every change, so that what was derived from a weight (panels, scales) is made anew.
class Parameter(Held):
    """A tensor set rarely (a weight), shared by every graph and executable that uses it.

    A tuple is its shape (float32 by default), and it has no value yet; a list, a number or an array
    is its value, as for `cx.tensor`. As an operand beside a Tensor it is a Weight of that graph.
    `requires_grad` is for training.

    Setting it bumps `version`, and programs derive packed forms anew before their next run.
    Read-only arrays (memory maps) are kept by reference, writable ones are copied. While `newest`
    stays the same, no Parameter was set.

    Programs may assign it as they do a State (a training step): then it has memory of its own,
    which they write, and a lock, which runs hold that read or assign it.
    """

    newest = 0
    differentiated: weakref.ref[Any] | None = None
    """The graph of the last `backward` that reached it."""
    is_part = False
    """Has it read-only bytes that others may read as another dtype? Devices copy them once."""

    def __init__(
        self,
        shape_or_data: Any,
        dtype: Any = None,
        name: str | None = None,
        *,
        requires_grad: bool = True,
    ) -> None:
        self.id = next(ids)
        self.name = name or f"parameter{self.id}"
        self.requires_grad = requires_grad
        wanted = None if dtype is None else any_dtype_of(dtype)
        value = None
        if not isinstance(shape_or_data, tuple):
            value = any_array_of(shape_or_data, wanted, self.name)
            shape_or_data, wanted = value.shape, any_dtype_of(value)
        self.dtype = wanted or dtypes.float32
        self.order = order_of(self.dtype)
        self.shape = literal_shape(self.name, shape_or_data)
        self.version = next(_versions)
        self.lock: threading.RLock | None = None  # from the first program on that assigns it
        self.spare: Buffer | None = None  # as a State's
        self._is_own = False  # is the buffer nobody else's?
        self.stored: Buffer | None = None  # its value, if it has one
        if value is not None:
            self.set(value)

    @property
    def has_value(self) -> bool:
        """Was the Parameter set? One that draws its first value when it is read has one."""
        if self.part is not None:
            return self.part.holder.has_value
        return self.stored is not None

    def set(self, value: Any) -> None:
        """Replaces the value; if it does not fit, ShapeError or DTypeError and no change."""
        array = checked(self.name, value, self.shape, self.dtype, self.part)
        if self.part is not None and not self.part.is_here:
            self.part.holder.set(self.part.cut(array))
            return
        self.about_to_change()
        self.part = None
        self._keep(self.as_it_lies(array), value)

    def _hold(self, value: Array) -> None:
        self._keep(value, value)

    def _starts_as(self, array: Array) -> None:
        """Takes the value that it had from the beginning, as far as anybody could tell."""
        self._keep(self.as_it_lies(array), array)

    def lies(self, memory: Array, order: Interleaved | None) -> None:
        """Takes an array of its own shape and dtype whose rows lie so; another order than it has
        only before any graph reads it.
        """
        self.about_to_change()
        self.order = order
        self._keep(memory, memory)

    def _keep(self, array: Array, user_value: Any) -> None:
        borrowed = isinstance(user_value, np.ndarray) and not array.flags.writeable
        if not borrowed or not array.flags.c_contiguous:
            kept = aligned_empty(*self.memory_type)
            kept[...] = array
        else:
            kept = array
        with self.lock or nullcontext():
            self.stored, self._is_own = HostBuffer(kept), False
            self.changed()

    def release(self) -> None:
        """Lets go of the memory: the value is elsewhere now, in parts."""
        with self.lock or nullcontext():
            self.stored, self.spare, self._is_own = None, None, False
            self.changed()

    def assigned(self) -> None:
        """Is called where programs are going to assign the Parameter."""
        if self.lock is None:
            self.lock = forks.rlock()
            self.changed()

    @property
    def buffer(self) -> Buffer:
        """The buffer in which the value lies; raises ShapeError if there is none."""
        self._check_whole()
        if self.stored is None:
            raise ShapeError(f"{self.name}: no value yet; call set(array) first")
        return self.stored

    @buffer.setter
    def buffer(self, buffer: Buffer) -> None:
        self.stored = buffer

    def on(self, space: MemorySpace[B]) -> B:
        """The Parameter's buffer in a device's memory, shared with nobody else from the first call
        on, as a State's is.
        """
        stored: Any = self.buffer
        if not self._is_own or stored.space is not space:
            stored.settle()
            self.stored = stored = moved(self, self.buffer, space)
            self.spare, self._is_own = None, True
        return stored  # type: ignore[no-any-return]

    def move(self, device: Any) -> None:
        with self.lock or nullcontext():
            space = MemorySpace.by_name(device)
            is_there = self.buffer.space is space if self._is_own else space is HOST
            if not is_there:
                self.on(space)
                self.changed()  # programs look for it where it is now

    @property
    def memory(self) -> Array:
        """The value on the host as it lies, for runs that read it: the array itself if that is
        there.
        """
        return self.buffer.array

    @property
    def grad(self) -> Any:
        """The gradient that `backward` has found so far, a Tensor of that graph; None if there is
        none. What is assigned to it stands for it, None for no gradient.
        """
        graph = None if self.differentiated is None else self.differentiated()
        return None if graph is None else graph.gradients.get(self)

    @grad.setter
    def grad(self, gradient: Any) -> None:
        graph = None if self.differentiated is None else self.differentiated()
        if gradient is None:
            if graph is not None:
                graph.gradients.pop(self, None)
            return
        if not hasattr(gradient, "graph"):
            gradient = (outside() if graph is None else graph).constant(gradient, self.dtype)
        if tuple(gradient.shape) != self.shape:
            raise ShapeError(
                f"{self.name}.grad: expected shape {self.shape}, got {tuple(gradient.shape)}"
            )
        gradient.graph.gradients[self] = gradient
        self.differentiated = weakref.ref(gradient.graph)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Sets `requires_grad`: is it trained? Gives itself, as torch.Tensor.requires_grad_."""
        self.requires_grad = requires_grad
        return self

    def changed(self) -> None:
        """Gives a new version, higher than any before."""
        self.version = Parameter.newest = next(_versions)

    def numpy(self) -> Array:
        """The current value, a copy where programs assign it or rows lie in another order; raises
        ShapeError if never set.
        """
        return self.in_order(self.memory_now())

    def memory_now(self) -> Array:
        """The value as it lies, a copy where programs assign it."""
        if not self._is_own:
            return self.memory
        with self.lock or nullcontext():
            self.buffer.settle()
            return self.buffer.copy()

    def rounded(self, dtype: DType) -> Parameter:
        """A Parameter of its own with the value, if there is one, rounded to `dtype`."""
        copy = Parameter(self.shape, dtype, self.name, requires_grad=self.requires_grad)
        if self.has_value:
            copy.set(dtype.rounded(self.numpy()))
        return copy

    def __getstate__(self) -> dict[str, Any]:
        """What a copy starts from, here or in another process: the value lies on the host."""
        self._take_back()
        with self.lock or nullcontext():
            held = {**vars(self), "lock": None, "spare": None, "_is_own": False}
            held |= {"readers": None, "differentiated": None}
            if self._is_own:
                stored, value = self.stored, HostBuffer(self.memory_now())
                held = {
                    name: value if attribute is stored else attribute
                    for name, attribute in held.items()
                }
        return held

    def __setstate__(self, held: dict[str, Any]) -> None:
        vars(self).update(held)
        self.id = next(ids)  # devices find what they hold by it, and by the version
        self.changed()

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        """A Parameter of its own with the same value; arrays are replaced, so both can hold one."""
        return copy.copy(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.numpy(), dtype)  # a copy: what is written there would not be noticed

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:  # fmt: skip
        return dlpack.snapshot_of(
            self.numpy(), stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU, 0

    def __repr__(self) -> str:
        elements = self._elements("Parameter(")
        return f"Parameter({elements}{', ' if elements else ''}{self._title})"

    def _repr_html_(self) -> str:
        return card(f"Parameter {self._title}", text=self._elements(""))

    @property
    def _title(self) -> str:
        state = "" if self.has_value else ", no value yet"
        return f"{self.name}: {self.dtype.short}{list(self.shape)}{state}"

    def _elements(self, prefix: str) -> str:
        value = self._peek() if math.prod(self.shape) <= MOST_SHOWN else None
        return "" if value is None else shown_elements(value, prefix)

    def _peek(self) -> Array | None:
        """The value, for a repr, which changes nothing and asks no other rank; None without."""
        return self.numpy() if self.has_value and self.part is None else None
