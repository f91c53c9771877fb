"""Dtypes, what can be asked of them and how they promote."""

from __future__ import annotations

from typing import Any

from luminal.array_api.array import Array, DTypes, common_dtype, of_arrays
from luminal.array_api.complex_numbers import cast
from luminal.base.complex_dtypes import ComplexDType, any_dtype_of, promote
from luminal.base.errors import DTypeError, InputError
from luminal.base.records import dataclass
from luminal.frontend import conversion
from luminal.frontend.foreign import check_device

KINDS = {
    "bool": ("bool",),
    "signed integer": ("int",),
    "unsigned integer": ("uint",),
    "integral": ("int", "uint"),
    "real floating": ("float",),
    "complex floating": ("complex",),
    "numeric": ("int", "uint", "float", "complex"),
}
"""The standard's names for kinds of dtypes, as Luminal's kinds."""


def of_kind(kind: str) -> tuple[str, ...]:
    """Luminal's kinds for a name of the standard's; raises InputError for another one."""
    if kind not in KINDS:
        raise InputError(f"kind {kind!r}: takes one of {', '.join(map(repr, KINDS))}")
    return KINDS[kind]


def isdtype(dtype: DTypes, kind: DTypes | str | tuple[Any, ...]) -> bool:
    """Is the dtype this one, of this kind, or one of several of these?"""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one_kind) for one_kind in kind)
    return dtype is kind if isinstance(kind, DTypes) else dtype.kind in of_kind(kind)


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """x in another dtype: floats are truncated to integers, bool is "not 0".

    Raises DTypeError for complex numbers as real ones: take real(x).
    """
    check_device("astype", device)
    return _astype(x, any_dtype_of(dtype))


@of_arrays
def _astype(x: Any, dtype: DTypes) -> Any:
    return cast(x, dtype)


def can_cast(from_: DTypes | Array, to: DTypes, /) -> bool:
    """Do the promotion rules lead from one dtype to the other, of the same kind?"""
    source = from_.dtype if isinstance(from_, Array) else from_
    kinds = {one_dtype.kind for one_dtype in (source, to)}
    same_kind = len(kinds) == 1 or kinds in ({"int", "uint"}, {"float", "complex"})
    return same_kind and promote(source, to) is to


def result_type(*arrays_and_dtypes: Any) -> DTypes:
    """The dtype of what these arrays, dtypes and numbers make; numbers count by their kind only."""
    return common_dtype(arrays_and_dtypes)


@dataclass(frozen=True, slots=True)
class FloatLimits:
    """What a float dtype holds."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DTypes


@dataclass(frozen=True, slots=True)
class IntegerLimits:
    """What an integer dtype holds."""

    bits: int
    max: int
    min: int
    dtype: DTypes


def finfo(type: DTypes | Array, /) -> FloatLimits:
    """The limits of a float dtype, of a complex one those of its parts; DTypeError for others."""
    dtype = _dtype(type)
    floats = dtype.real if isinstance(dtype, ComplexDType) else dtype
    limits = conversion.finfo(floats)
    return FloatLimits(
        int(limits.bits),
        float(limits.eps),
        float(limits.max),
        float(limits.min),
        float(limits.smallest_normal),
        floats,
    )


def iinfo(type: DTypes | Array, /) -> IntegerLimits:
    """The limits of an integer dtype; raises DTypeError for others."""
    limits = conversion.iinfo(_dtype(type))
    return IntegerLimits(int(limits.bits), int(limits.max), int(limits.min), _dtype(type))


def _dtype(x: DTypes | Array) -> DTypes:
    return x.dtype if isinstance(x, Array) else x


@of_arrays
def imag(x: Any, /) -> Any:
    """The imaginary parts. Raises DTypeError for real numbers, as the standard leaves them out."""
    raise DTypeError(f"imag: {x.dtype.name} has no imaginary part; it would be 0")


__all__ = [
    "astype", "can_cast", "finfo", "iinfo", "imag", "isdtype", "result_type",
]  # fmt: skip
