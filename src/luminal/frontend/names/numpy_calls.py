"""NumPy's functions of Tensors: `np.exp(t)` and `array + t` record, all else reads the elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from luminal.frontend.handle import is_tensor
from luminal.frontend.matrices import matmul
from luminal.frontend.pointwise import binary, combine, exponential, rounding, trigonometric, unary
from luminal.frontend.pointwise.binary import graph_of
from luminal.memory.data import is_array

BINARY: dict[str, Callable[..., Any]] = {
    "add": binary.add,
    "subtract": binary.sub,
    "multiply": binary.mul,
    "divide": binary.div,
    "floor_divide": binary.floor_div,
    "remainder": binary.mod,
    "fmod": rounding.fmod,
    "divmod": combine.divmod,
    "power": binary.pow,
    "float_power": combine.float_power,
    "maximum": binary.maximum,
    "minimum": binary.minimum,
    "fmax": combine.fmax,
    "fmin": combine.fmin,
    "equal": binary.equal,
    "not_equal": binary.not_equal,
    "less": binary.less,
    "less_equal": binary.less_equal,
    "greater": binary.greater,
    "greater_equal": binary.greater_equal,
    "bitwise_and": binary.bit_and,
    "bitwise_or": binary.bit_or,
    "bitwise_xor": binary.bit_xor,
    "left_shift": binary.shift_left,
    "right_shift": binary.shift_right,
    "logical_and": combine.logical_and,
    "logical_or": combine.logical_or,
    "logical_xor": combine.logical_xor,
    "arctan2": trigonometric.atan2,
    "hypot": unary.hypot,
    "copysign": combine.copysign,
    "logaddexp": exponential.logaddexp,
    "matmul": matmul.matmul,
}
UNARY: dict[str, Callable[..., Any]] = {
    "negative": unary.neg,
    "positive": lambda x: x,
    "absolute": unary.abs,
    "fabs": unary.abs,
    "sign": unary.sign,
    "invert": unary.invert,
    "logical_not": unary.logical_not,
    "exp": unary.exp,
    "exp2": unary.exp2,
    "expm1": exponential.expm1,
    "log": unary.log,
    "log2": unary.log2,
    "log10": exponential.log10,
    "log1p": exponential.log1p,
    "sqrt": unary.sqrt,
    "cbrt": unary.cbrt,
    "square": unary.square,
    "reciprocal": unary.reciprocal,
    "sin": unary.sin,
    "cos": unary.cos,
    "tan": trigonometric.tan,
    "arcsin": trigonometric.asin,
    "arccos": trigonometric.acos,
    "arctan": trigonometric.atan,
    "sinh": trigonometric.sinh,
    "cosh": trigonometric.cosh,
    "tanh": trigonometric.tanh,
    "arcsinh": trigonometric.asinh,
    "arccosh": trigonometric.acosh,
    "arctanh": trigonometric.atanh,
    "degrees": trigonometric.rad2deg,
    "rad2deg": trigonometric.rad2deg,
    "radians": trigonometric.deg2rad,
    "deg2rad": trigonometric.deg2rad,
    "floor": rounding.floor,
    "ceil": rounding.ceil,
    "trunc": rounding.trunc,
    "rint": rounding.round,
    "isnan": unary.isnan,
    "isinf": unary.isinf,
    "isfinite": unary.isfinite,
    "signbit": unary.signbit,
}


def ufunc(function: Any, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """`np.exp(t)`: recorded, in Luminal's dtypes. `arr += t` and the like: NumPy's, of elements."""
    ours = BINARY.get(function.__name__) or UNARY.get(function.__name__)
    if ours is None or method != "__call__" or options:
        return getattr(function, method)(*_elements(inputs), **_elements(options))
    graph = graph_of(function.__name__, inputs)
    return ours(*(graph.constant(x) if is_array(x) else x for x in inputs))


def function(function: Any, args: Any, kwargs: Any) -> Any:
    """`np.concatenate([t, t])`: NumPy's, of the elements."""
    return function(*_elements(args), **_elements(kwargs))


def _elements(data: Any) -> Any:
    """Data with arrays for the Tensors in it."""
    if is_tensor(data):
        return data.numpy()
    if isinstance(data, dict):
        return {name: _elements(each) for name, each in data.items()}
    if type(data) in (list, tuple):
        return type(data)(map(_elements, data))
    return data
