"""What the namespace offers: `__array_namespace_info__()`."""

from __future__ import annotations

from typing import Any

from luminal.array_api.data_types import of_kind
from luminal.base import dtypes
from luminal.base.complex_dtypes import COMPLEX, ComplexDType, complex64
from luminal.base.dtypes import DType
from luminal.frontend.foreign import check_device

STANDARD: tuple[DType | ComplexDType, ...] = (
    *(each for each in dtypes.ALL if not each.is_storage),
    *COMPLEX,
)
"""The dtypes that the standard names; float16 and bfloat16 are Luminal's own."""


class Info:
    """What the standard lets callers ask of a namespace."""

    def capabilities(self) -> dict[str, Any]:
        """The optional features of the standard, and whether they are there."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The name of the default device, always "cpu"."""
        return "cpu"

    def devices(self) -> list[str]:
        """Always the CPU alone."""
        return ["cpu"]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType | ComplexDType]:
        """The dtypes of what names none."""
        check_device("default_dtypes", device)
        return {
            "real floating": dtypes.float32,
            "complex floating": complex64,
            "integral": dtypes.int64,
            "indexing": dtypes.int64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType | ComplexDType]:
        """Dtypes by name: all, those of a kind, or of several kinds."""
        check_device("dtypes", device)
        if kind is None:
            return {dtype.name: dtype for dtype in STANDARD}
        names = kind if isinstance(kind, tuple) else (kind,)
        kinds = {dtype for name in names for dtype in of_kind(name)}
        return {dtype.name: dtype for dtype in STANDARD if dtype.kind in kinds}


def __array_namespace_info__() -> Info:
    """What this namespace offers."""
    return Info()
