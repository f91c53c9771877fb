"""State and Parameter: tensors that outlive graphs and executables, and are shared by them.

Each holds a Buffer of a device. A run there takes the value over where it lies elsewhere: it moves,
and there is never a second one that could be stale.
"""

from __future__ import annotations

import copy
import itertools
import math
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, Self, TypeAlias, TypeVar, cast

import numpy as np

from luminal.base import dtypes, forks
from luminal.base.complex_dtypes import ComplexDType, any_dtype_of
from luminal.base.dtypes import DType
from luminal.base.errors import DTypeError, ShapeError
from luminal.base.markup import card
from luminal.memory import dlpack
from luminal.memory.arrays import (
    HOST,
    Array,
    B,
    Buffer,
    HostBuffer,
    MemorySpace,
    aligned_empty,
    aligned_zeros,
)
from luminal.memory.data import any_array_of, shown_elements
from luminal.memory.part import Part
from luminal.memory.row_order import Interleaved, PairsOf
from luminal.memory.stored import stored_or_array

A = TypeVar("A")

recorder: ContextVar[Any] = ContextVar("luminal_recorder", default=None)
"""The Recorder of what is being recorded here: in a module's forward that of its arguments."""
MOST_SHOWN = 1 << 22
"""Elements of a Parameter whose repr shows some: it may have to decode or copy all of them."""
_ids = itertools.count()
_versions = itertools.count(1)


class Outside:
    """The Recorder where nothing else is recorded: `session/eager.py`, which stands on this, says
    which.
    """

    graph: Callable[[], Any]

    def __call__(self) -> Any:
        return self.graph()


outside = Outside()


def _literal_shape(what: str, shape: Sequence[int]) -> tuple[int, ...]:
    if isinstance(shape, int) or not all(isinstance(n, int | np.integer) and n >= 0 for n in shape):
        raise ShapeError(f"{what}: shape {shape!r} is not a tuple of ints >= 0")
    return tuple(int(n) for n in shape)


def _order_of(dtype: DType | ComplexDType) -> PairsOf | None:
    return PairsOf(dtype) if isinstance(dtype, ComplexDType) else None


def _checked(
    what: str, array: Any, shape: tuple[int, ...], dtype: DType, part: Part | None = None
) -> Array:
    """`array` as an ndarray of this very shape and dtype; where it is going to be cut, what lies in
    a file stays there.
    """
    if part is None:
        checked = any_array_of(array, dtype, what)
    else:
        checked = cast(Array, stored_or_array(array, dtype, what))
    if checked.shape != shape:
        raise ShapeError(f"{what}: expected shape {shape}, got {checked.shape}")
    return checked


class _Held(ABC):
    """An array that lives outside of graphs, and what is asked of it.

    While a module's forward or a function under jit is recorded it has what a Tensor has: methods,
    properties and operators (`_operator` below) are those of its value in that graph.
    """

    shape: tuple[int, ...]
    dtype: Any
    """A DType, or a ComplexDType: programs know of complex numbers as pairs of floats."""
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
    def is_paired(self) -> bool:
        """Does it hold complex numbers, which lie as pairs of floats?"""
        return isinstance(self.dtype, ComplexDType)

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

    def detach(self) -> Any:
        """The value without gradients where a graph is recorded; elsewhere, where there are none,
        the array itself.
        """
        value = self.value_here()
        return self if value is None else value.detach()

    def cpu(self) -> Self:
        """The array itself: its value needs no move to be read here."""
        return self

    @property
    def data(self) -> Any:
        """The value as `detach` gives it; what is assigned to it is set."""
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        self.set(value)

    @abstractmethod
    def set(self, value: Any) -> None:
        """Replaces the value of the array."""

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

    # --- as a Tensor

    def value_here(self) -> Any:
        """The Tensor that it is in what is being recorded; None where nothing is."""
        graph = recorder.get()
        return None if graph is None else graph.constant(self)

    def __getattr__(self, name: str) -> Any:
        # Python and NumPy ask any object for such names to learn what it can: that records nothing.
        if name.startswith("_"):
            kind = type(self).__name__
            raise AttributeError(f"a {kind} has no attribute {name!r}", name=name, obj=self)
        graph = recorder.get()
        here = outside() if graph is None else graph
        is_tensors = here.has(name) and not (graph is None and name in ("graph", "value"))
        if is_tensors:
            return getattr(here.constant(self), name)
        if graph is None and name.endswith("_") and here.has(name[:-1]):
            return partial(self._become, name[:-1])
        if graph is None and name in here.draws:
            return partial(self._draw_anew, here.draws[name])
        raise AttributeError(f"{self!r} has no {name!r}: {_instead(self, name)}")

    def as_tensor(self) -> Any:
        """The Tensor that it is in what is being recorded, else on the default graph."""
        value = self.value_here()
        return outside().constant(self) if value is None else value

    def _become(self, method: str, *arguments: Any, **options: Any) -> Self:
        """Sets it to what a method of its Tensor gives, as PyTorch's methods in place do."""
        self.set(getattr(self.as_tensor(), method)(*arguments, **options))
        return self

    def _draw_anew(self, drawn: Callable[..., Array], *arguments: Any, **options: Any) -> Self:
        """Sets it to random numbers, as `uniform_` and the like do; gives itself."""
        if self.is_paired:
            raise DTypeError(f"{self.name} is complex; draw lm.randn(..., dtype=lm.complex64)")
        self.set(self.dtype.rounded(drawn(self.shape, *arguments, **options)))
        return self

    def copy_(self, value: Any) -> Self:
        """Sets the array, as torch.Tensor.copy_; gives itself."""
        self.set(value)
        return self

    def zero_(self) -> Self:
        """Sets all elements to 0; gives itself."""
        return self.fill_(0)

    def fill_(self, value: float) -> Self:
        """Sets all elements to a number; gives itself."""
        self.set(np.full(self.shape, value, self.dtype.numpy))
        return self

    def __bool__(self) -> bool:
        """Outside of what is being recorded True: it is there."""
        value = self.value_here()
        return True if value is None else bool(value)

    # Defining `__eq__` would leave the class without one.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        """The comparison by element with numbers, arrays and Tensors; Parameters and States are
        each only itself, and so can be keys.
        """
        return self._compared("__eq__", other)

    def __ne__(self, other: object) -> Any:
        return self._compared("__ne__", other)

    def _compared(self, name: str, other: object) -> Any:
        is_number = isinstance(other, bool | int | float | complex | np.generic | np.ndarray | list)
        value = self.value_here() if is_number else None
        return NotImplemented if value is None else getattr(value, name)(other)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*map(_operand, inputs), **options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return function(*_operand([*args]), **{k: _operand(x) for k, x in kwargs.items()})

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(
            f"x[...] = v: {self!r} is set as a whole: x.set(array); a State is also assigned by a "
            "run: lm.assign(state, value), of a value that index_put or slice_scatter gives"
        )


# A State lies where it last ran, and there is no second one that could be stale: a run on another
# device takes it from there. Copying it before each run, so that a run that fails could restore it,
# would cost as much as a key-value cache is large.
class State(_Held):
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
        self.id = next(_ids)
        self.name = name or f"state{self.id}"
        self.dtype = any_dtype_of(dtype)
        self.order = _order_of(self.dtype)
        self.shape = _literal_shape(self.name, shape)
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
        return first if first.ndim == 0 else _checked(self.name, first, *self._type).copy()

    def on(self, space: MemorySpace[B]) -> B:
        """The State's buffer in a device's memory, where the value is moved first if it lies
        elsewhere.
        """
        self._check_whole()
        buffer: Any = self.buffer
        if buffer.space is not space:
            buffer.settle()
            self.buffer = buffer = _moved(self, self.buffer, space)
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
        array = _checked(self.name, value, *self._type, self.part)
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


# Weights are the other way round: they stay where they were set, and each device that reads them
# has one copy of each version, since several may read at one time. The version rises with every
# change, so that what was derived from a weight (panels, scales) is made anew.
class Parameter(_Held):
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
        self.id = next(_ids)
        self.name = name or f"parameter{self.id}"
        self.requires_grad = requires_grad
        wanted = None if dtype is None else any_dtype_of(dtype)
        value = None
        if not isinstance(shape_or_data, tuple):
            value = any_array_of(shape_or_data, wanted, self.name)
            shape_or_data, wanted = value.shape, any_dtype_of(value)
        self.dtype = wanted or dtypes.float32
        self.order = _order_of(self.dtype)
        self.shape = _literal_shape(self.name, shape_or_data)
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
        array = _checked(self.name, value, self.shape, self.dtype, self.part)
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
            self.stored = stored = _moved(self, self.buffer, space)
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
        self.id = next(_ids)  # devices find what they hold by it, and by the version
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


Assignable: TypeAlias = State | Parameter


def _state_of(
    shape: tuple[int, ...], dtype: DType, init: Array, name: str, value: Array, persistent: bool
) -> State:
    state = State(shape, dtype, init, name)
    state.set(value)
    state.persistent = persistent
    return state


def _moved(held: Assignable, buffer: Buffer, space: MemorySpace[B]) -> B:
    """A Buffer in `space` with the value of another."""
    buffer_there = space.empty(*held.memory_type)
    buffer_there.write(buffer.array)
    return buffer_there


def spare_on(held: Assignable, space: MemorySpace[B]) -> B:
    """The State's second buffer, made at first use; the value is on that device."""
    spare: Any = held.spare
    if spare is None or spare.space is not space:
        held.spare = spare = space.empty(*held.memory_type)
    return spare  # type: ignore[no-any-return]


def exchange(held: Assignable, space: MemorySpace[Any]) -> None:
    """After a run there that wrote the second buffer: that is the value now."""
    held.buffer, held.spare = spare_on(held, space), held.buffer


def how_to_read(held: Assignable) -> str:
    """The words of an error that say how a Parameter or State is read where it is no Tensor."""
    return "read it into a graph with cx.read(...)"


def _instead(held: _Held, name: str) -> str:
    """What to write for an attribute that is not there."""
    if name.endswith("_"):
        return "no graph changes it in place; outside of graphs write p.set(array)"
    return how_to_read(cast(Assignable, held))


def _operand(x: Any) -> Any:
    """What NumPy is called with: Tensors where something is being recorded, else arrays."""
    if isinstance(x, list | tuple):
        return type(x)(map(_operand, x)) if type(x) in (list, tuple) else x
    if not isinstance(x, _Held):
        return x
    value = x.value_here()
    return np.asarray(x) if value is None else value


def _operator(name: str) -> Callable[..., Any]:
    def operator(self: _Held, *others: Any) -> Any:
        value = self.value_here()
        if value is None:
            operands = State | Parameter | int | float | complex
            if name in _BINARY and not isinstance(others[0], operands):
                return NotImplemented  # a Tensor of a graph reads it there
            value = self.as_tensor()
        return getattr(value, name)(*others)

    return operator


def _in_place(name: str) -> Callable[..., Any]:
    def operator(self: _Held, other: Any) -> Any:
        if recorder.get() is not None:
            return NotImplemented  # a new value, as for any Tensor
        return self._become(name, other)

    return operator


_ARITHMETIC = "add sub mul truediv floordiv mod divmod pow matmul and or xor lshift rshift"
_BINARY = {f"__{side}{name}__" for name in _ARITHMETIC.split() for side in ("", "r")} | {
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
}
_OTHERS = "neg pos abs invert getitem len iter contains float int index".split()
for _name in (*_BINARY, *(f"__{name}__" for name in _OTHERS)):
    setattr(_Held, _name, _operator(_name))
for _name in _ARITHMETIC.split():
    if _name != "divmod":
        setattr(_Held, f"__i{_name}__", _in_place(f"__{_name}__"))
