"""What operations on constants and neutral elements are known to give.

Integers and bools only: what floats give stays with the machine, down to the bits of a NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.expand.ir import Constant, Operand, Type
from luminal.expand.operations import OPERATIONS

NEUTRAL = {"add": 0, "sub": 0, "or": 0, "xor": 0, "shl": 0, "shr": 0, "mul": 1, "quotient": 1}
"""The second operand that changes nothing."""
ZERO = frozenset(("mul", "and"))
"""These are 0 where an operand is."""
COMMUTATIVE = frozenset(("add", "mul", "and", "or", "xor"))


def constant(type_: Type, value: bool | int | float) -> Constant:
    """The number in every lane; integers wrap, floats round."""
    if type_.dtype.is_int:
        return _integer(type_, int(value))
    return _number(type_, value, math.copysign(1.0, value))


@lru_cache(4096)
def _number(type_: Type, value: float, sign: float) -> Constant:
    """A float or bool; -0.0 equals 0.0, and has another sign."""
    return Constant(type_, type_.dtype.numpy.type(value).tobytes() * type_.lanes)


@lru_cache(4096)
def _integer(type_: Type, value: int) -> Constant:
    dtype = type_.dtype
    data = (value & (1 << dtype.bits) - 1).to_bytes(dtype.size, "little")
    return Constant(type_, data * type_.lanes)


def uniform(operand: Operand) -> int | None:
    """The integer or bool that is known to be in every lane."""
    if not isinstance(operand, Constant):
        return None
    type_, data = operand.type, operand.data
    dtype = type_.dtype
    if dtype.is_float or (type_.lanes > 1 and data != data[: dtype.size] * type_.lanes):
        return None
    return int.from_bytes(data[: dtype.size], "little", signed=dtype.is_signed)


def folded(name: str, args: Sequence[Operand], type_: Type) -> Operand | None:
    """What the operation gives, where that is an operand already known."""
    if name == "select":
        chosen = uniform(args[0])
        return args[2 - chosen] if chosen is not None else args[1] if args[1] == args[2] else None
    # Folding in NumPy could give other bits of a NaN than the machine does, or lose the NaN that 0
    # times an infinity is.
    if type_.dtype.is_float or any(arg.type.dtype.is_float for arg in args):
        return None
    uniforms = [uniform(arg) for arg in args]
    if None not in uniforms and name in OPERATIONS and OPERATIONS[name].result is not None:
        return _evaluated(name, args, type_)
    if len(args) != 2:
        return None
    return _neutral(name, args, uniforms, type_)


def _neutral(
    name: str, args: Sequence[Operand], uniforms: Sequence[int | None], type_: Type
) -> Operand | None:
    x, y = args
    if name in COMMUTATIVE and uniforms[0] is not None:
        (x, y), uniforms = (y, x), uniforms[::-1]
    if uniforms[1] is None:
        return None
    if uniforms[1] == 0 and name in ZERO:
        return y
    if uniforms[1] == NEUTRAL.get(name):
        return x
    if type_.dtype is dtypes.bool_ and uniforms[1] == 1 and name in ("and", "or"):
        return x if name == "and" else y
    return None


def _evaluated(name: str, args: Sequence[Operand], type_: Type) -> Constant:
    values = [arg.values for arg in args if isinstance(arg, Constant)]
    value = OPERATIONS[name].meaning(*values)
    return Constant(type_, value.astype(type_.dtype.numpy).tobytes())


def converted(operand: Operand, dtype: DType) -> Constant | None:
    """An integer or bool constant as another integer dtype."""
    value = uniform(operand)
    if value is None or not dtype.is_int:
        return None
    return constant(Type(dtype, operand.type.lanes), value)
