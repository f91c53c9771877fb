"""What statements of expanded IR take: scalars and vectors of a type, defined once or constant."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.records import dataclass


# Short floats have no type here: few machines compute in them, and those that convert them say so
# by an instruction that `expand` is told of.
class Type:
    """A scalar (`lanes` 1) or a vector, of a dtype that is no storage.

    There is one object of each, which equals itself: operations are looked up by their types.
    """

    __slots__ = ("dtype", "lanes")
    dtype: DType
    lanes: int
    _all: ClassVar[dict[tuple[DType, int], Type]] = {}

    def __new__(cls, dtype: DType, lanes: int = 1) -> Type:
        interned = cls._all.get((dtype, lanes))
        if interned is None:
            fresh = object.__new__(cls)
            fresh.dtype, fresh.lanes = dtype, lanes
            interned = cls._all.setdefault((dtype, lanes), fresh)
        return interned

    def __reduce__(self) -> tuple[Any, ...]:
        return Type, (self.dtype, self.lanes)

    def __str__(self) -> str:
        return f"{self.dtype}" if self.lanes == 1 else f"{self.dtype}x{self.lanes}"


def memory_dtype(dtype: DType) -> DType:
    """What an element of a buffer is loaded and stored as."""
    return dtypes.uint8 if dtype is dtypes.bool_ else dtype.word


LINE = 64  # bytes that memory gives and takes together
INDEX = Type(dtypes.int64)
CONDITION = Type(dtypes.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """What a statement defines, once; it equals itself only."""

    id: int
    type: Type

    def __str__(self) -> str:
        return f"%{self.id}"


@dataclass(frozen=True, slots=True)
class Constant:
    """An operand known by its bits: `data` holds one element per lane, as in memory."""

    type: Type
    data: bytes

    def __hash__(self) -> int:
        return hash(self.data)

    @property
    def values(self) -> NDArray[Any]:
        """One NumPy element per lane."""
        return np.frombuffer(self.data, self.type.dtype.numpy)

    @property
    def bits(self) -> tuple[int, ...]:
        """The lanes as unsigned integers."""
        return tuple(map(int, np.frombuffer(self.data, f"u{self.type.dtype.size}")))

    def __str__(self) -> str:
        values = self.values
        if self.type.dtype.is_float:
            shown = [f"{v}" if v == v else f"nan:0x{n:x}" for v, n in zip(values, self.bits)]  # noqa: B905
        else:
            shown = [str(v) for v in values]
        return shown[0] if len(set(shown)) == 1 else f"({' '.join(shown)})"


Operand = Value | Constant
