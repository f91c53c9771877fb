"""What an array outside of graphs has of a Tensor: methods, operators, and what NumPy asks for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Self

import numpy as np

from luminal.base.complex_dtypes import ComplexDType
from luminal.base.errors import DTypeError
from luminal.memory.arrays import Array

HOW_TO_READ = "read it into a graph with cx.read(...)"
"""What an error says of a Parameter or State where it is no Tensor."""
recorder: ContextVar[Any] = ContextVar("luminal_recorder", default=None)
"""The Recorder of what is being recorded here: in a module's forward that of its arguments."""


class Outside:
    """The Recorder where nothing else is recorded: `session/eager.py`, which stands on this, says
    which.
    """

    graph: Callable[[], Any]

    def __call__(self) -> Any:
        return self.graph()


outside = Outside()


class AsTensor(ABC):
    """An array outside of graphs that has what a Tensor has.

    While a module's forward or a function under jit is recorded, methods, properties and operators
    (`_operator` below) are those of its value in that graph.
    """

    name: str
    shape: tuple[int, ...]
    dtype: Any
    """A DType, or a ComplexDType: programs know of complex numbers as pairs of floats."""

    @property
    def is_paired(self) -> bool:
        """Does it hold complex numbers, which lie as pairs of floats?"""
        return isinstance(self.dtype, ComplexDType)

    @abstractmethod
    def set(self, value: Any) -> None:
        """Replaces the value of the array."""

    def detach(self) -> Any:
        """The value without gradients where a graph is recorded; elsewhere, where there are none,
        the array itself.
        """
        value = self.value_here()
        return self if value is None else value.detach()

    @property
    def data(self) -> Any:
        """The value as `detach` gives it; what is assigned to it is set."""
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        self.set(value)

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
        raise AttributeError(f"{self!r} has no {name!r}: {_instead(name)}")

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


def _instead(name: str) -> str:
    """What to write for an attribute that is not there."""
    if name.endswith("_"):
        return "no graph changes it in place; outside of graphs write p.set(array)"
    return HOW_TO_READ


def _operand(x: Any) -> Any:
    """What NumPy is called with: Tensors where something is being recorded, else arrays."""
    if isinstance(x, list | tuple):
        return type(x)(map(_operand, x)) if type(x) in (list, tuple) else x
    if not isinstance(x, AsTensor):
        return x
    value = x.value_here()
    return np.asarray(x) if value is None else value


def _operator(name: str) -> Callable[..., Any]:
    def operator(self: AsTensor, *others: Any) -> Any:
        value = self.value_here()
        if value is None:
            operands = AsTensor | int | float | complex
            if name in _BINARY and not isinstance(others[0], operands):
                return NotImplemented  # a Tensor of a graph reads it there
            value = self.as_tensor()
        return getattr(value, name)(*others)

    return operator


def _in_place(name: str) -> Callable[..., Any]:
    def operator(self: AsTensor, other: Any) -> Any:
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
    setattr(AsTensor, _name, _operator(_name))
for _name in _ARITHMETIC.split():
    if _name != "divmod":
        setattr(AsTensor, f"__i{_name}__", _in_place(f"__{_name}__"))
