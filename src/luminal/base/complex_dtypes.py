"""complex64 and complex128: two floats each. No graph has them; pairs of Tensors stand for them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.errors import DTypeError
from luminal.base.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class ComplexDType:
    """The dtype of complex numbers: two floats of `real`. One object of each, as of a DType."""

    name: str
    short: str
    size: int  # bytes in memory
    real: DType
    kind: Literal["complex"] = "complex"
    is_float: bool = False
    is_int: bool = False
    is_storage: bool = False

    @property
    def compute(self) -> DType:
        """Raises DTypeError: arithmetic is that of both parts."""
        raise DTypeError(
            f"{self.name}: this is computed with real numbers; take lm.view_as_real(z), or z.real "
            "and z.imag"
        )

    @property
    def numpy(self) -> np.dtype[Any]:
        """NumPy's dtype of this name."""
        return np.dtype(self.name)

    def rounded(self, x: Any) -> np.ndarray[Any, Any]:
        """An array's numbers in this dtype, as NumPy rounds them."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(np.asarray(x).astype(self.numpy))

    def __str__(self) -> str:
        return self.short

    def __repr__(self) -> str:
        return f"luminal.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (any_dtype_of, (self.name,))


complex64 = ComplexDType("complex64", "c64", 8, dtypes.float32)
complex128 = ComplexDType("complex128", "c128", 16, dtypes.float64)
COMPLEX = (complex64, complex128)

_BY_NAME = {dtype.name: dtype for dtype in COMPLEX} | {"cfloat": complex64, "cdouble": complex128}


def complex_dtype_of(obj: Any) -> ComplexDType | None:
    """The complex dtype that `obj` names or has; None where it names or has none.

    It may be a ComplexDType, its name, `complex`, a complex number, NumPy's or PyTorch's dtype or
    array.
    """
    if obj is None or isinstance(obj, DType):
        return None
    if isinstance(obj, ComplexDType):
        return obj
    if isinstance(obj, str):
        return _BY_NAME.get(obj)
    if obj is complex or type(obj) is complex:
        return complex64
    source = obj if isinstance(obj, type) else getattr(obj, "dtype", obj)
    if isinstance(source, ComplexDType):
        return source
    if isinstance(source, np.dtype) or (
        isinstance(source, type) and issubclass(source, np.generic)
    ):
        return _BY_NAME.get(np.dtype(source).name)
    # By the text, so that PyTorch need not be imported.
    library, _, name = str(source).partition(".") if type(source).__name__ == "dtype" else ("",) * 3
    return _BY_NAME.get(name) if library == type(source).__module__ else None


def any_dtype_of(obj: Any) -> DType | ComplexDType:
    """The dtype that `obj` names, a complex one too. Raises DTypeError as `dtypes.dtype_of`."""
    kind = complex_dtype_of(obj)
    return dtypes.dtype_of(obj) if kind is None else kind


def promote(a: DType | ComplexDType, b: DType | ComplexDType) -> DType | ComplexDType:
    """The common dtype of two tensors, as `dtypes.promote`: complex with a float of 64 bits is
    complex128. Raises DTypeError as there.
    """
    if isinstance(a, DType) and isinstance(b, DType):
        return dtypes.promote(a, b)
    parts = [x.real if isinstance(x, ComplexDType) else x for x in (a, b)]
    if any(part.is_moved_only for part in parts):
        raise DTypeError(f"{a.name} and {b.name} have no common dtype; cast one of them")
    return complex128 if dtypes.promote(*parts) is dtypes.float64 else complex64
