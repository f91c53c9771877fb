"""Two or three tensors in, one out, element by element, with NumPy's broadcasting.

Python numbers, NumPy scalars and Expressions of dims are weak: they adopt the tensor's type, unless
their kind is higher (bool, integer, float). So do 0-d tensors beside tensors with dims. Arrays and
lists become constants of their own dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.errors import DTypeError, ShapeError
from luminal.frontend.creation import literal
from luminal.frontend.handle import Operand, Shape, apply, describe, is_tensor, together, work_dtype
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.hlir.attributes import ConstantAttrs
from luminal.memory.as_tensor import outside, recorder
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.shape.expression import Expression
from luminal.shape.view import broadcast_shapes, expand

if TYPE_CHECKING:
    from luminal.frontend.graph import Recorder
    from luminal.frontend.tensor import Tensor


EXACT = 1 << 53
"""Ints up to here are floats of Python's, too."""

# --- promotion and broadcasting -------------------------------------------------------------------


def unified(
    what: str, operands: Sequence[Operand], *, floating: bool = False
) -> tuple[list[Tensor], DType]:
    """The operands in one compute dtype and one shape, and the dtype that the result goes back to.

    `floating` turns integers into float32.
    """
    if len(operands) == 2 and (pair := _plain_pair(*operands)) is not None:
        return pair
    graph = graph_of(what, operands)
    result = promotion(operands)
    if floating and not result.is_float:
        result = work_dtype(result)
    tensors = [lifted(what, graph, x, result.compute) for x in operands]
    shape = common_shape(what, tensors)
    return [broadcast(x, shape) for x in tensors], result


# What most operations meet. The way around costs four times as much, half of a small loop's Python.
def _plain_pair(a: Operand, b: Operand) -> tuple[list[Tensor], DType] | None:
    """`unified` of two tensors of one float dtype and one shape, or of such a tensor and a number
    of Python's; None of all else.
    """
    x, other = (a, b) if is_tensor(a) else (b, a)
    if not is_tensor(x) or not (dtype := x.dtype).is_float or dtype.is_moved_only:
        return None
    work, extents = dtype.compute, x.extents
    if is_tensor(other):
        if other.dtype is not dtype or other.graph is not x.graph or other.extents != extents:
            return None
        return [x.cast(work), other.cast(work)], dtype
    if type(other) is not float and (type(other) is not int or abs(other) > EXACT):
        return None
    graph = x.graph
    number = graph.wrap(graph.builder.make("Constant", (), _number(repr(other), work)).value)
    pair = [x.cast(work), broadcast(number, extents)]
    return pair if x is a else pair[::-1], dtype


@lru_cache(4096)
def _number(text: str, dtype: DType) -> ConstantAttrs:
    """A number of Python's, as it writes it, in `dtype`."""
    return ConstantAttrs((), dtype, dtype.rounded(float(text)).tobytes())


def promotion(operands: Sequence[Operand]) -> DType:
    """The dtype that the operands meet in, as PyTorch's.

    Tensors with dims decide; 0-d ones, and numbers after them, only where their kind is higher.
    """
    # A number does not widen a tensor: x * 2.5 stays float16, x + 1 stays int8. Only a higher kind
    # does.
    ranked: tuple[list[DType], ...] = ([], [], [])  # numbers, 0-d tensors, tensors with dims
    for x in operands:
        ranked[precedence(x)].append(dtype_of_operand(x))
    of_ranks = [
        reduce(dtypes.promote, dtypes_of_rank) for dtypes_of_rank in ranked if dtypes_of_rank
    ]
    return reduce(dtypes.promote_weak, of_ranks)


def precedence(x: Operand) -> int:
    """Who decides the dtype: 0 for a number, 1 for a 0-d tensor or array, 2 for one with dims."""
    if _is_weak(x):
        return 0
    if is_tensor(x) or isinstance(x, Parameter | State):
        return 2 if x.shape else 1
    return 2 if literal(x).shape else 1


def dtype_of_operand(x: Operand) -> DType:
    """The dtype of a Tensor, a Parameter, a State, an array, a list's array, or a bare number."""
    if is_tensor(x) or isinstance(x, Parameter | State):
        return x.dtype
    return dtypes.default_dtype(_python_scalar(x)) if _is_weak(x) else dtypes.dtype_of(literal(x))


def lifted(what: str, graph: Recorder, x: Operand, dtype: DType) -> Tensor:
    """`x` as a Tensor of `dtype`: weak numbers become 0-d constants of it, the rest is cast."""
    return _scalar(what, graph, x, dtype) if _is_weak(x) else graph.constant(x).cast(dtype)


def graph_of(what: str, operands: Sequence[Operand]) -> Recorder:
    """The graph that records an operation on `operands`; DTypeError if none is a Tensor."""
    tensors = [x for x in operands if is_tensor(x)]
    if not tensors:
        if any(isinstance(x, State | Parameter) for x in operands):
            graph: Recorder = recorder.get() or outside()
            return graph
        raise DTypeError(f"{what}: no operand is a Tensor; make one with cx.constant(...)")
    return together(*tensors)[0]


def common_shape(what: str, tensors: Sequence[Tensor]) -> Shape:
    """The shape that all broadcast to; raises ShapeError that names the operands."""
    shapes = [x.extents for x in tensors]
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    try:
        return broadcast_shapes(*shapes)
    except ShapeError as error:
        raise ShapeError(f"{what}({', '.join(map(describe, tensors))}): {error}") from None


def broadcast(x: Tensor, shape: Shape) -> Tensor:
    """`x` repeated along the dims it lacks, or has with extent 1, up to `shape`."""
    if x.extents == shape:
        return x
    return x.graph.wrap(x.graph.builder.view(x.value, expand(x.extents, shape)))


def _is_weak(x: Any) -> bool:
    return isinstance(x, bool | int | float | np.generic | Expression)


def _python_scalar(x: Any) -> bool | int | float:
    """A number that promotes as `x` does."""
    if isinstance(x, Expression):
        # Any int promotes alike, so an extent that only a run knows counts as 1.
        return x.value if x.is_const else 1
    number: bool | int | float = x.item() if isinstance(x, np.generic) else x
    return number


def _scalar(what: str, graph: Recorder, x: Any, dtype: DType) -> Tensor:
    """A weak number as a 0-d constant of `dtype`."""
    if isinstance(x, Expression) and not x.is_const:
        return graph.constant(x, dtype)
    number = _python_scalar(x)
    if isinstance(number, int) and dtype.is_int:
        _check_range(what, number, dtype)
    return graph.constant(dtype.rounded(number))


def _check_range(what: str, number: int, dtype: DType) -> None:
    """DTypeError where `number` does not fit; negative ones wrap in unsigned types."""
    limits = np.iinfo(dtype.numpy)
    # As in C, -1 of uint8 is 255; a number beyond both ranges is a mistake.
    least = limits.min if dtype.is_signed else -limits.max
    if not least <= number <= limits.max:
        raise DTypeError(
            f"{what}: {number} does not fit {dtype.name} "
            f"({limits.min}..{limits.max}); cast the tensor to a wider type"
        )


def fill_value(what: str, graph: Recorder, x: Operand, dtype: DType) -> Tensor:
    """A number or 0-d Tensor as what tensors of `dtype` are filled with: 0-d, of that dtype.

    A bool takes any number, integers take whole ones; DTypeError where it does not fit.
    """
    if is_tensor(x) or not _is_weak(x):
        met = dtypes.promote_weak(dtype_of_operand(x), dtype)
        if dtype is not dtypes.bool_ and met is not dtype:
            raise DTypeError(f"{what}: {x!r} is no {dtype.name}; cast the tensor or the value")
        return graph.constant(x).cast(dtype)
    number = _python_scalar(x)
    if dtype is dtypes.bool_:
        number = bool(number)
    elif not dtype.is_float and isinstance(number, float):
        if not number.is_integer():
            raise DTypeError(f"{what}: {number!r} is no {dtype.name}; cast the tensor or the value")
        number = int(number)
    return _scalar(what, graph, x if isinstance(x, Expression) else number, dtype)


# --- arithmetic -----------------------------------------------------------------------------------


def _arithmetic(op: str, what: str, a: Operand, b: Operand, bool_op: str | None = None) -> Tensor:
    """`op` in the promoted type; bools take `bool_op`, or count as integers where that is None."""
    (x, y), result = unified(what, (a, b))
    if result is dtypes.bool_:
        if bool_op is not None:
            return apply(bool_op, x, y)
        return apply(op, x.cast(dtypes.int64), y.cast(dtypes.int64))
    return apply(op, x, y).cast(result)


def add(a: Operand, b: Operand, *, alpha: float = 1) -> Tensor:
    """a + alpha * b; `or` for bools."""
    # The factor is applied in the promoted dtype: alpha=0.5 of an int tensor beside a float one is
    # a half.
    if alpha != 1:
        b = mul(lifted("add", graph_of("add", (a, b)), b, promotion((a, b))), alpha)
    return _arithmetic("Add", "add", a, b, "Or")


def mul(a: Operand, b: Operand) -> Tensor:
    """a * b; `and` for bools."""
    return _arithmetic("Mul", "mul", a, b, "And")


def sub(a: Operand, b: Operand, *, alpha: float = 1) -> Tensor:
    """a - alpha * b."""
    if alpha != 1:
        return add(a, b, alpha=-alpha)
    (x, y), result = unified("sub", (a, b))
    if result is dtypes.bool_:
        raise DTypeError("sub: bools have no difference; use ^ or cast to an integer")
    return apply("Add", x, -y).cast(result)


def div(a: Operand, b: Operand) -> Tensor:
    """a / b, correctly rounded; integers give float32."""
    (x, y), result = unified("div", (a, b), floating=True)
    return apply("Div", x, y).cast(result)


def floor_div(a: Operand, b: Operand) -> Tensor:
    """a // b, rounded down; integers by 0 give 0."""
    return _arithmetic("FloorDiv", "floor_div", a, b)


def mod(a: Operand, b: Operand) -> Tensor:
    """a % b with the sign of b; integers by 0 give 0."""
    return _arithmetic("Mod", "mod", a, b)


# --- order ----------------------------------------------------------------------------------------


def maximum(a: Operand, b: Operand) -> Tensor:
    """The greater; NaN where either is NaN."""
    return _arithmetic("Maximum", "maximum", a, b, "Or")


def minimum(a: Operand, b: Operand) -> Tensor:
    """The lesser; NaN where either is NaN."""
    (x, y), result = unified("minimum", (a, b))
    if result is dtypes.bool_:
        return apply("And", x, y)
    if result.is_float:
        # There is no primitive Minimum: -max(-x, -y) keeps NaN, which a Select by < would lose.
        return (-apply("Maximum", -x, -y)).cast(result)
    return apply("Select", apply("LessThan", x, y), x, y)


def _clip_derivative(
    g: Tensor, y: Tensor, x: Tensor, min: Operand | None = None, max: Operand | None = None
) -> tuple[Tensor, ...]:
    """The bounds count as inside, NaN as outside; a bound has the gradient of what it holds. All
    as in PyTorch.
    """
    below: Any = False if min is None else less(x, min)
    above: Any = False if max is None else less(max, x)
    within = (True if min is None else x >= min) & (True if max is None else x <= max)
    gradients = [where(within, g, 0)]
    if is_tensor(min):
        gradients.append(where(below if max is None else below & less(min, max), g, 0))
    if is_tensor(max):
        gradients.append(where(above if min is None else above | less(max, min), g, 0))
    return tuple(gradients)


@differentiated(_clip_derivative)
def clip(x: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """x, but at least `min` and at most `max`; NaN stays."""
    if min is None and max is None:
        raise ShapeError("clip: neither min nor max is given; give at least one")
    if min is not None:
        x = maximum(x, min)
    return x if max is None else minimum(x, max)


def clamp_min(x: Tensor, min: Operand) -> Tensor:
    """x, but at least `min`; NaN stays."""
    return clip(x, min)


def clamp_max(x: Tensor, max: Operand) -> Tensor:
    """x, but at most `max`; NaN stays."""
    return clip(x, max=max)


def _compared(what: str, a: Operand, b: Operand) -> list[Tensor]:
    """The operands as a comparison takes them: bools count as 0 and 1."""
    pair, result = unified(what, (a, b))
    # The order of bools is that of 0 and 1; LessThan takes numbers.
    return [x.cast(dtypes.uint8) for x in pair] if result is dtypes.bool_ else pair


def less(a: Operand, b: Operand) -> Tensor:
    """a < b; False with NaN."""
    x, y = _compared("<", a, b)
    return apply("LessThan", x, y)


def less_equal(a: Operand, b: Operand) -> Tensor:
    """a <= b; False with NaN."""
    x, y = _compared("<=", a, b)
    if x.dtype.is_float:
        # Of floats `not y < x` would be true where one is NaN.
        return apply("Or", apply("LessThan", x, y), apply("Equal", x, y))
    return ~apply("LessThan", y, x)


def greater(a: Operand, b: Operand) -> Tensor:
    """a > b; False with NaN."""
    return less(b, a)


def greater_equal(a: Operand, b: Operand) -> Tensor:
    """a >= b; False with NaN."""
    return less_equal(b, a)


def equal(a: Operand, b: Operand) -> Tensor:
    """a == b, elementwise; False with NaN."""
    x, y = _compared("==", a, b)
    return apply("Equal", x, y)


def not_equal(a: Operand, b: Operand) -> Tensor:
    """a != b, elementwise; True with NaN."""
    return ~equal(a, b)


# --- bits and choice ------------------------------------------------------------------------------


def _bits(op: str, what: str, a: Operand, b: Operand) -> Tensor:
    (x, y), result = unified(what, (a, b))
    if result.is_float or (op in ("Shl", "Shr") and result is dtypes.bool_):
        raise DTypeError(f"{what}: {result.name} has no such bit operation; cast to an integer")
    return apply(op, x, y)


def bit_and(a: Operand, b: Operand) -> Tensor:
    """a & b, of bools or of bits."""
    return _bits("And", "&", a, b)


def bit_or(a: Operand, b: Operand) -> Tensor:
    """a | b, of bools or of bits."""
    return _bits("Or", "|", a, b)


def bit_xor(a: Operand, b: Operand) -> Tensor:
    """a ^ b, of bools or of bits."""
    return _bits("Xor", "^", a, b)


def shift_left(a: Operand, b: Operand) -> Tensor:
    """a << b; 0 for negative counts and those past the width."""
    return _bits("Shl", "<<", a, b)


def shift_right(a: Operand, b: Operand) -> Tensor:
    """a >> b, keeping the sign; past the width 0 or -1."""
    return _bits("Shr", ">>", a, b)


def where(condition: Operand, a: Operand, b: Operand) -> Tensor:
    """a where `condition` is true (not 0), else b; all three broadcast.

    Without a and b it would say where that is, as PyTorch: see `nonzero`.
    """
    graph = graph_of("where", (condition, a, b))
    mask = graph.constant(condition).cast(dtypes.bool_)
    result = promotion((a, b))
    tensors = [mask, *(lifted("where", graph, x, result) for x in (a, b))]
    shape = common_shape("where", tensors)
    return apply("Select", *(broadcast(x, shape) for x in tensors))
