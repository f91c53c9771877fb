"""Array: what the functions of `lm.array_api` take and give, a value that is computed when needed.

Arrays are values, though `x[key] = value` and `x += y` exist: they give the one Array another
value, and no other Array sees it.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from functools import reduce, wraps
from typing import Any, NoReturn

import numpy as np

from luminal.array_api.complex_numbers import calling as also_complex
from luminal.array_api.complex_numbers import cast
from luminal.array_api.deferred import (
    DeferredPair,
    Held,
    Memory,
    deferred_of,
    record,
    settle,
)
from luminal.base import complex_dtypes, dtypes
from luminal.base.complex_dtypes import ComplexDType
from luminal.base.dtypes import DType
from luminal.base.errors import DTypeError, InputError, ShapeError
from luminal.frontend.foreign import check_device
from luminal.frontend.handle import Pair, is_tensor
from luminal.frontend.matrices import matmul
from luminal.frontend.movement import views
from luminal.frontend.pointwise import binary, combine, exponential, unary
from luminal.frontend.scan import flatten
from luminal.memory import dlpack
from luminal.memory.data import any_array_of

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

Number = bool | int | float | complex
DTypes = DType | ComplexDType


# Arrays are values: writing makes a new one, in place where nobody else reads the old. Views that
# alias, as NumPy has them, would make every write an order of its own between recorded operations.
class Array:
    """An array of the standard. Make one with `asarray`, `zeros`, `arange` ..."""

    __slots__ = ("_deferred",)
    # `==` compares elements and gives an Array, so an Array can be no key of a dict.
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # NumPy's operators leave the work to ours

    def __init__(self, deferred: Held) -> None:
        self._deferred = deferred

    # --- what is known without a run

    @property
    def dtype(self) -> DTypes:
        """The type of the elements."""
        return self._deferred.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of all dims."""
        return self._deferred.shape

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def device(self) -> str:
        """The name of the device, always "cpu"."""
        return "cpu"

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        """Itself; raises InputError for any device but the CPU."""
        check_device("to_device", device)
        if stream is not None:
            raise InputError(f"to_device: stream {stream!r}: the CPU has none; leave it out")
        return self

    @property
    def T(self) -> Array:
        """The transpose; raises ShapeError unless there are two dims."""
        if self.ndim != 2:
            raise ShapeError(f"T: {self.ndim} dims, not 2; use mT or permute_dims")
        return self.mT

    @property
    def mT(self) -> Array:
        """The array with its last two dims exchanged."""
        return _transposed(self)  # type: ignore[no-any-return]

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """`lm.array_api`; raises InputError for a version of the standard that it does not know."""
        if api_version not in (None, *VERSIONS):
            versions = ", ".join(VERSIONS)
            raise InputError(f"api_version {api_version!r}: takes one of {versions}")
        return sys.modules[__package__]

    # --- elements

    def _single(self, what: str) -> Any:
        if self.shape != ():
            raise ShapeError(f"{what}: an array of shape {self.shape}; only 0-d ones are numbers")
        return self._deferred.array()[()]

    def __bool__(self) -> bool:
        return builtins.bool(self._single("bool"))

    def __int__(self) -> int:
        return builtins.int(self._real("int"))

    def __float__(self) -> float:
        return builtins.float(self._real("float"))

    def __complex__(self) -> complex:
        return builtins.complex(self._single("complex"))

    def _real(self, what: str) -> Any:
        if self.dtype.kind == "complex":
            raise DTypeError(f"{what}: the array is {self.dtype.name}; take real(x)")
        return self._single(what)

    def __index__(self) -> int:
        if not self.dtype.is_int:
            raise DTypeError(f"index: the array is {self.dtype.name}, no integer; use astype")
        return builtins.int(self._single("index"))

    def __len__(self) -> int:
        if self.shape == ():
            raise ShapeError("len: a 0-d array has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        shown = np.array2string(self._deferred.array(), separator=", ", prefix="Array(")
        return f"Array({shown}, dtype={self.dtype.name})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Memory:
        """A read-only view: operations that are recorded read this memory later."""
        self._deferred.is_private = False
        # Read-only, since operations recorded before may read this memory later.
        view = self._deferred.array().view()
        view.flags.writeable = False
        return np.array(view, dtype, copy=copy)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:  # fmt: skip
        array = self._deferred.array()
        # From here on the receiver may write to this memory at any time. What was recorded of it is
        # computed before that, and what will be recorded runs at once.
        if isinstance(self._deferred, DeferredPair):
            for part in self._deferred.parts:
                settle(part.array())
            self._deferred = DeferredPair(array)
        settle(array)
        self._deferred.is_private, self._deferred.is_shared = False, True
        return dlpack.capsule_of(
            array, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU, 0

    def __copy__(self) -> Array:
        self._deferred.is_private = False
        # Both Arrays hold one value from now on: the next write to either makes a copy first.
        return Array(self._deferred)

    def __deepcopy__(self, memo: dict[int, Any]) -> Array:
        return self.__copy__()

    def __reduce__(self) -> Any:
        return of_memory, (self._deferred.array(),)

    # --- parts

    def __getitem__(self, key: Any) -> Array:
        """A copy of what NumPy's indexing gives: ints, slices, None, Ellipsis, arrays, a mask.

        The array is computed first, so that positions compile nothing.
        """
        return of_memory(np.array(self._deferred.array()[_key(key)]))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Writes a number or an array, which broadcasts, in this array's dtype.

        Raises DTypeError where the value would not be kept.
        """
        elements = _assignable(self.dtype, value)
        array = self._deferred.array()
        # Copy on write: others may hold this value, and an Array that is written to is another
        # value.
        if not self._deferred.is_private:
            array = array.copy()
            self._deferred = deferred_of(array)
            self._deferred.is_private = True
        array[_key(key)] = elements

    def _become(self, other: Any) -> Array:
        """The result of an operator that assigns; raises where it has another type."""
        if other is NotImplemented:
            # Python then tries the plain operator and the other operand's own, and raises its usual
            # TypeError where neither knows what to do.
            return other  # type: ignore[no-any-return]
        if (other.shape, other.dtype) != (self.shape, self.dtype):
            raise DTypeError(
                f"an operator that assigns keeps {self.dtype.name} of shape {self.shape}, the "
                f"result is {other.dtype.name} of shape {other.shape}; write x = x + y"
            )
        self._deferred = other._deferred
        return self

    # --- operators

    # fmt: off
    def __add__(self, other: Any) -> Any: return _add(self, other)
    def __radd__(self, other: Any) -> Any: return _add(other, self)
    def __iadd__(self, other: Any) -> Any: return self._become(_add(self, other))
    def __sub__(self, other: Any) -> Any: return _sub(self, other)
    def __rsub__(self, other: Any) -> Any: return _sub(other, self)
    def __isub__(self, other: Any) -> Any: return self._become(_sub(self, other))
    def __mul__(self, other: Any) -> Any: return _mul(self, other)
    def __rmul__(self, other: Any) -> Any: return _mul(other, self)
    def __imul__(self, other: Any) -> Any: return self._become(_mul(self, other))
    def __truediv__(self, other: Any) -> Any: return _div(self, other)
    def __rtruediv__(self, other: Any) -> Any: return _div(other, self)
    def __itruediv__(self, other: Any) -> Any: return self._become(_div(self, other))
    def __floordiv__(self, other: Any) -> Any: return _floor_div(self, other)
    def __rfloordiv__(self, other: Any) -> Any: return _floor_div(other, self)
    def __ifloordiv__(self, other: Any) -> Any: return self._become(_floor_div(self, other))
    def __mod__(self, other: Any) -> Any: return _mod(self, other)
    def __rmod__(self, other: Any) -> Any: return _mod(other, self)
    def __imod__(self, other: Any) -> Any: return self._become(_mod(self, other))
    def __pow__(self, other: Any) -> Any: return _pow(self, other)
    def __rpow__(self, other: Any) -> Any: return _pow(other, self)
    def __ipow__(self, other: Any) -> Any: return self._become(_pow(self, other))
    def __matmul__(self, other: Any) -> Any: return _matmul(self, other)
    def __rmatmul__(self, other: Any) -> Any: return _matmul(other, self)
    def __imatmul__(self, other: Any) -> Any: return self._become(_matmul(self, other))
    def __and__(self, other: Any) -> Any: return _and(self, other)
    def __rand__(self, other: Any) -> Any: return _and(other, self)
    def __iand__(self, other: Any) -> Any: return self._become(_and(self, other))
    def __or__(self, other: Any) -> Any: return _or(self, other)
    def __ror__(self, other: Any) -> Any: return _or(other, self)
    def __ior__(self, other: Any) -> Any: return self._become(_or(self, other))
    def __xor__(self, other: Any) -> Any: return _xor(self, other)
    def __rxor__(self, other: Any) -> Any: return _xor(other, self)
    def __ixor__(self, other: Any) -> Any: return self._become(_xor(self, other))
    def __lshift__(self, other: Any) -> Any: return _shift_left(self, other)
    def __rlshift__(self, other: Any) -> Any: return _shift_left(other, self)
    def __ilshift__(self, other: Any) -> Any: return self._become(_shift_left(self, other))
    def __rshift__(self, other: Any) -> Any: return _shift_right(self, other)
    def __rrshift__(self, other: Any) -> Any: return _shift_right(other, self)
    def __irshift__(self, other: Any) -> Any: return self._become(_shift_right(self, other))
    def __lt__(self, other: Any) -> Any: return _less(self, other)
    def __le__(self, other: Any) -> Any: return _less_equal(self, other)
    def __gt__(self, other: Any) -> Any: return _greater(self, other)
    def __ge__(self, other: Any) -> Any: return _greater_equal(self, other)
    def __eq__(self, other: Any) -> Any: return _equal(self, other)
    def __ne__(self, other: Any) -> Any: return _not_equal(self, other)
    def __neg__(self) -> Any: return _neg(self)
    def __pos__(self) -> Any: return self.__copy__()
    def __abs__(self) -> Any: return _abs(self)
    def __invert__(self) -> Any: return _invert(self)
    # fmt: on


def of_memory(array: Memory, *, is_shared: bool = False) -> Array:
    """An Array of these elements, in one memory with them; `is_shared` as of a Deferred."""
    return Array(deferred_of(any_array_of(array, None, "asarray"), is_shared=is_shared))


def memory_of(x: Any) -> Memory:
    """The elements of an Array, computed now. Raises DTypeError for anything else."""
    return _held(x).array()


def _key(key: Any) -> Any:
    """An index with NumPy's arrays for ours."""
    if isinstance(key, tuple):
        return tuple(map(_key, key))
    return memory_of(key) if isinstance(key, Array) else key


def _assignable(dtype: DTypes, value: Any) -> Memory:
    """`value` as elements of `dtype`."""
    if not isinstance(value, Array):
        return any_array_of(value, dtype, "x[...] = value")
    # Assigning never loses an element's value silently.
    if complex_dtypes.promote(dtype, value.dtype) is not dtype:
        raise DTypeError(
            f"x[...] = value: x holds {dtype.name}, the value {value.dtype.name}; use astype"
        )
    return memory_of(value).astype(dtype.numpy)


# --- calls ----------------------------------------------------------------------------------------


def of_arrays(function: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """Lets a function of Tensors take Arrays, also in lists, and give Arrays for Tensors.

    Called with Tensors it records into their graph, as before. `name`: its name for complex ones.
    """
    function_of_any = also_complex(name or function.__name__, function)

    @wraps(function)
    def calling(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = flatten((args, kwargs))
        operands = [x._deferred for x in leaves if isinstance(x, Array)]
        if not operands:
            return function_of_any(*args, **kwargs)

        def within(tensors: Any) -> Any:
            remaining = iter(tensors)
            arguments = [next(remaining) if isinstance(x, Array) else x for x in leaves]
            positional, named = tree.build(arguments)
            return function_of_any(*positional, **named)

        return record(within, operands, Array)

    return calling


def promoting(
    function: Callable[..., Any], name: str = "", *, literal: bool = False, kept: int = 0
) -> Callable[..., Any]:
    """A function of Tensors as one of Arrays and numbers, which are cast to their common dtype.

    Numbers are data: another one is no other program. Where `literal`, they are part of it. The
    first `kept` operands are Arrays that keep their dtype. `name` as of `of_arrays`.
    """
    function_of_any = also_complex(name or function.__name__, function)

    @wraps(function)
    def calling(*operands: Any, **options: Any) -> Any:
        if not any(isinstance(x, Array) for x in operands):
            return function_of_any(*operands, **options)
        # The dtype is settled before anything is recorded, since it is a part of the program,
        # whereas the numbers become data of it.
        dtype = common_dtype(operands[kept:])
        held = [
            _held(x) if k < kept else _operand(x, dtype, literal) for k, x in enumerate(operands)
        ]
        deferred = [operand for operand in held if isinstance(operand, Held)]

        def within(tensors: Any) -> Any:
            remaining = iter(tensors)
            parts = [next(remaining) if isinstance(x, Held) else x for x in held]
            alike = [cast(x, dtype) if _is_value(x) else x for x in parts[kept:]]
            return function_of_any(*parts[:kept], *alike, **options)

        return record(within, deferred, Array)

    return calling


def _is_value(x: Any) -> bool:
    return is_tensor(x) or isinstance(x, Pair)


def in_their_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    """A product of two operands in their dtype: the standard does not widen sums of products."""

    @wraps(function)
    def product(x: Any, y: Any, **options: Any) -> Any:
        product_of_two = function(x, y, **options)
        return product_of_two.cast(dtypes.promote(x.dtype, y.dtype))

    return product


def _held(x: Any) -> Held:
    if not isinstance(x, Array):
        _refuse(x)
    return x._deferred


def _operand(x: Any, dtype: DTypes, literal: bool) -> Any:
    if isinstance(x, Array):
        return x._deferred
    # As data a number is an operand of the program: x * 2 and x * 3 are one program.
    array = any_array_of(x, dtype, "a number")  # raises where it does not fit
    return x if literal else deferred_of(array)


def common_dtype(operands: Any) -> DTypes:
    """The dtype in which Arrays, dtypes and numbers meet; a number counts by its kind only.

    Unlike elsewhere in Luminal, 0-d arrays count as others do. Raises DTypeError for what is none.
    """
    # Numbers come last and by their kind only: were they promoted as arrays are, `x + 1` would
    # widen every narrow array to int64.
    dtypes_met: list[DTypes] = []
    numbers = []
    for x in operands:
        if isinstance(x, DTypes | Array):
            dtypes_met.append(x.dtype if isinstance(x, Array) else x)
        elif isinstance(x, Number):
            numbers.append(x)
        else:
            _refuse(x)
    if not dtypes_met:
        raise DTypeError("no array or dtype is given; pass one")
    return reduce(_with_number, numbers, reduce(complex_dtypes.promote, dtypes_met))


def _with_number(dtype: DTypes, number: Number) -> DTypes:
    if isinstance(dtype, ComplexDType):
        return dtype
    if isinstance(number, complex):
        is_wide = dtypes.promote_weak(dtypes.float32, dtype) is dtypes.float64
        return complex_dtypes.complex128 if is_wide else complex_dtypes.complex64
    return dtypes.promote_weak(dtypes.default_dtype(number), dtype)


def _refuse(x: Any) -> NoReturn:
    raise DTypeError(f"a {type(x).__name__} is no array of lm.array_api; pass asarray(x)")


def _operator(function: Callable[..., Any], *, literal: bool = False) -> Callable[..., Any]:
    """A Python operator that promotes its operands and leaves what it does not know to the other
    side; see `promoting`.
    """
    calling = promoting(function, literal=literal)

    def operator(x: Any, y: Any) -> Any:
        is_known = all(isinstance(operand, Array | Number) for operand in (x, y))
        return calling(x, y) if is_known else NotImplemented

    return operator


_add, _sub, _mul, _div = map(_operator, (binary.add, binary.sub, binary.mul, binary.div))
_floor_div = _operator(binary.floor_div, literal=True)
_mod = _operator(combine.remainder, literal=True)
_pow = _operator(exponential.pow, literal=True)
_matmul = _operator(in_their_dtype(matmul.matmul))
_and, _or, _xor = map(_operator, (binary.bit_and, binary.bit_or, binary.bit_xor))
_shift_left = _operator(binary.shift_left, literal=True)
_shift_right = _operator(binary.shift_right, literal=True)
_less, _less_equal = map(_operator, (binary.less, binary.less_equal))
_greater, _greater_equal = map(_operator, (binary.greater, binary.greater_equal))
_equal, _not_equal = map(_operator, (binary.equal, binary.not_equal))
_neg, _abs, _invert = map(of_arrays, (unary.neg, unary.abs, unary.invert))
_transposed = of_arrays(views.matrix_transpose)
