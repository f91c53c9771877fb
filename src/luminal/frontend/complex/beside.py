"""Operators of real Tensors, and of arrays of NumPy, whose other operand is complex."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import numpy as np

from luminal.base.complex_dtypes import ComplexDType
from luminal.frontend.complex.parts import complex_constant, is_complex_number
from luminal.frontend.handle import Pair
from luminal.memory.parameter import Parameter
from luminal.memory.state import State

_REFLECTED = {
    "__add__": "__radd__", "__radd__": "__add__", "__sub__": "__rsub__", "__rsub__": "__sub__",
    "__mul__": "__rmul__", "__rmul__": "__mul__", "__eq__": "__eq__", "__ne__": "__ne__",
    "__truediv__": "__rtruediv__", "__rtruediv__": "__truediv__",
    "__matmul__": "__rmatmul__", "__rmatmul__": "__matmul__",
    "__pow__": "__rpow__", "__rpow__": "__pow__",
}  # fmt: skip


def beside_complex(kind: type) -> None:
    """Has the operators of Tensors give ComplexTensors where the other operand is complex."""
    for name, reflected in _REFLECTED.items():
        setattr(kind, name, _or_complex(reflected, getattr(kind, name)))
    kind.__array_ufunc__ = _of_array(kind.__array_ufunc__)  # type: ignore[attr-defined]


_UFUNCS = {
    np.add: "__add__", np.subtract: "__sub__", np.multiply: "__mul__",
    np.true_divide: "__truediv__", np.matmul: "__matmul__", np.equal: "__eq__",
    np.not_equal: "__ne__", np.power: "__pow__",
}  # fmt: skip


def _of_array(operate: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's operators where a complex array stands left of a Tensor."""

    def operator(self: Any, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc in _UFUNCS and method == "__call__" and is_complex_number(inputs[0]):
            return getattr(complex_constant(inputs[0], self), _UFUNCS[ufunc])(inputs[1])
        return operate(self, ufunc, method, *inputs, **options)

    return update_wrapper(operator, operate)


def _or_complex(reflected: str, operate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def operator(self: Any, other: Any) -> Any:
        if isinstance(other, Parameter | State) and isinstance(other.dtype, ComplexDType):
            other = self.graph.constant(other)
        if isinstance(other, Pair) or is_complex_number(other):
            pair = other if isinstance(other, Pair) else complex_constant(other, self)
            return getattr(pair, reflected)(self)
        return operate(self, other)

    return update_wrapper(operator, operate)
