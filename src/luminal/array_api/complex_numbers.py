"""What the functions of the namespace do where operands are complex: each by its name."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from luminal.base.complex_dtypes import ComplexDType
from luminal.base.dtypes import bool_
from luminal.base.errors import DTypeError
from luminal.frontend.complex.parts import linear, part_of, product
from luminal.frontend.complex.tensor import ComplexTensor
from luminal.frontend.creation import zeros_like
from luminal.frontend.handle import Pair, axes_of
from luminal.frontend.movement.views import concat

WHOLE = "a function of complex numbers"
"""The name of functions that take complex numbers by themselves."""
LINEAR = frozenset(
    "cumulative_sum expand_dims matrix_transpose permute_dims round take take_along_axis "
    "unstack".split()
)
"""Functions of the standard that do the same to both parts, beside those of `luminal`."""


def cast(x: Any, dtype: Any) -> Any:
    """x in another dtype. Raises DTypeError where imaginary parts would be lost."""
    if not isinstance(dtype, ComplexDType):
        if isinstance(x, Pair) and dtype is bool_:
            return x.ne(0)  # type: ignore[attr-defined]
        if isinstance(x, Pair):
            raise DTypeError(
                f"astype: {x!r} as {dtype.name} would lose its imaginary part; take real(x)"
            )
        return x.cast(dtype)
    if isinstance(x, ComplexTensor):
        return x.to(dtype)
    real = x.cast(dtype.real)
    return ComplexTensor(real, zeros_like(real))


def _prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """By halves: the extents are literal."""
    z = x if dtype is None else cast(x, dtype)
    for k in axes_of("prod", axis, z.ndim):
        last = z.movedim(k, -1)
        while (n := int(last.shape[-1])) > 1:
            pairs = last[..., : n // 2] * last[..., n // 2 : 2 * (n // 2)]
            last = pairs if n % 2 == 0 else _join(pairs, last[..., n - 1 :])
        if n == 0:
            last = last.new_ones((*last.shape[:-1], 1))
        z = last.movedim(-1, k)
    dims = axes_of("prod", axis, z.ndim)
    return z if keepdims or not dims else z.squeeze(dims)


def _join(a: ComplexTensor, b: ComplexTensor) -> ComplexTensor:
    return ComplexTensor(*(concat([x, y], -1) for x, y in zip(a.parts, b.parts, strict=True)))


def _conjugating(function: Callable[..., Any]) -> Callable[..., Any]:
    """A product whose first operand is conjugated."""

    def called(x: Any, y: Any, **options: Any) -> Any:
        return product(partial(function, **options), x.conj(), y)

    return called


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    """What is written with functions that take complex numbers."""
    return function


def _of_sizes(function: Callable[..., Any]) -> Callable[..., Any]:
    """A norm, which is that of the absolute values."""
    return lambda x, **options: function(abs(x), **options)


def _of_truth(function: Callable[..., Any]) -> Callable[..., Any]:
    """What asks whether elements are 0."""
    return lambda x, **options: function(x != 0, **options)


def _each_in_its_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    """What moves several operands, of which real ones stay real."""

    def called(*operands: Any, **options: Any) -> Any:
        reals, imags = (
            function(*(part_of(x, part) for x in operands), **options) for part in ("real", "imag")
        )
        moved = zip(operands, reals, imags, strict=True)
        return [ComplexTensor(a, b) if isinstance(x, Pair) else a for x, a, b in moved]

    return called


def _multiplying(function: Callable[..., Any]) -> Callable[..., Any]:
    """What is linear in both of two operands."""
    return lambda x, y, **options: product(partial(function, **options), x, y)


OWN: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "_astype": lambda function: cast,
    "_cast": lambda function: cast,
    **dict.fromkeys(("all", "any", "count_nonzero"), _of_truth),
    **dict.fromkeys(("broadcast_arrays", "meshgrid"), _each_in_its_dtype),
    "cross": _multiplying,
    "equal": lambda function: operator.eq,
    "prod": lambda function: _prod,
    "sign": lambda function: ComplexTensor.sgn,
    "vecdot": _conjugating,
    "vector_norm": _of_sizes,
    **dict.fromkeys(("cholesky", "matrix_norm", "qr", "solve", "std", "var"), _as_it_is),
}
"""What is neither linear nor as in `luminal`, of the function of real Tensors."""


def calling(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, also for complex operands."""

    def called(*args: Any, **kwargs: Any) -> Any:
        pair = _among(args, kwargs) if Pair.in_use else None
        if pair is None:
            return function(*args, **kwargs)
        if name == WHOLE:
            return function(*args, **kwargs)
        if name in OWN:
            return OWN[name](function)(*args, **kwargs)
        if name in LINEAR:
            return linear(function, args, kwargs)
        return pair.apply(name, function, *args, **kwargs)

    return called


def _among(args: Sequence[Any], kwargs: Mapping[str, Any]) -> ComplexTensor | None:
    for x in (*args, *kwargs.values()):
        for operand in x if isinstance(x, list | tuple) else (x,):
            if isinstance(operand, ComplexTensor):
                return operand
    return None
