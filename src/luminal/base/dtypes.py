"""Element types: what Luminal stores and computes in, and how they promote.

`float16` and `bfloat16` are *storage* types: operations on them record a Cast up to float32, the
operation, and a Cast down, so that Cast is the only thing that rounds. The floats of 8 bits are
storage that nothing is computed on, as in PyTorch: they are moved, and cast. What blocks with a
scale are made of (`OF_BLOCKS`) is read from bytes by a Bitcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import ml_dtypes
import numpy as np

from luminal.base.errors import DTypeError
from luminal.base.records import dataclass

Kind = Literal["bool", "int", "uint", "float"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type. `name` is NumPy's name, `short` the one used in printed IRs.

    There is one object of each, which equals itself: tables are asked for dtypes all the time.
    """

    name: str
    short: str
    size: int  # bytes in memory
    kind: Kind
    numpy: np.dtype[Any]
    is_storage: bool = False  # held in memory only; computed in float32

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        """Signed or unsigned integer; bool is neither int nor float."""
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("int", "float")

    @property
    def bits(self) -> int:
        return 8 * self.size

    @property
    def is_moved_only(self) -> bool:
        """A float of 8 bits, with which nothing is computed."""
        return self.is_float and self.size == 1

    @property
    def word(self) -> DType:
        """What an element is held as where its bits are worked on: storage floats have no registers
        of their own.
        """
        return (uint8 if self.size == 1 else uint16) if self.is_storage else self

    @property
    def compute(self) -> DType:
        """The type that arithmetic on this one happens in. Raises DTypeError for a float of 8 bits:
        a sum of such would be rounded to some two decimal digits, which nobody means.
        """
        if self.is_moved_only:
            raise DTypeError(
                f"{self.name} holds values, and nothing is computed in it; cast operands first, as "
                "x.cast('float32') or 'bfloat16'"
            )
        return float32 if self.is_storage else self

    @property
    def lowest(self) -> Any:
        """The value below all others, as a NumPy scalar: the Max of nothing."""
        if self.kind == "bool":
            return np.bool_(False)
        if self.is_float:
            return self.rounded(np.array(-np.inf))[()]
        return self.numpy.type(np.iinfo(self.numpy).min)

    @property
    def largest(self) -> int | float:
        """The greatest finite value."""
        if self.kind == "bool":
            return 1
        if not self.is_float:
            return int(np.iinfo(self.numpy).max)
        return float(ml_dtypes.finfo(self.numpy).max)  # type: ignore[no-untyped-call]

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next float; 0 for integers."""
        return float(ml_dtypes.finfo(self.numpy).eps) if self.is_float else 0.0  # type: ignore[no-untyped-call]

    def rounded(self, x: Any) -> np.ndarray[Any, Any]:
        """An array's numbers in this dtype, as NumPy rounds them.

        float8_e4m3fn, which has no infinity, has its greatest value for all beyond it, as PyTorch
        has (2.13; Micikevicius et al., arXiv 2209.05433, leave the choice). float4_e2m1fn has
        neither that nor NaN, for which it has zero.
        """
        x = np.asarray(x)
        if self is float4_e2m1fn and x.dtype.kind not in "biu":
            x = np.where(np.isnan(x), np.copysign(np.float32(0), x), x)
        with np.errstate(over="ignore", invalid="ignore"):
            if self is float8_e4m3fn and x.dtype != self.numpy:
                x = np.clip(x.astype(np.float32), -self.largest, self.largest)
            return np.asarray(x.astype(self.numpy))

    def __str__(self) -> str:
        return self.short

    def __repr__(self) -> str:
        return f"luminal.{self.name if self.name != 'bool' else 'bool_'}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (dtype_of, (self.name,))


def _dtype(name: str, short: str, kind: Kind, numpy: Any, *, is_storage: bool = False) -> DType:
    numpy = np.dtype(numpy)
    return DType(name, short, numpy.itemsize, kind, numpy, is_storage)


bool_ = _dtype("bool", "bool", "bool", np.bool_)
int8 = _dtype("int8", "i8", "int", np.int8)
int16 = _dtype("int16", "i16", "int", np.int16)
int32 = _dtype("int32", "i32", "int", np.int32)
int64 = _dtype("int64", "i64", "int", np.int64)
uint8 = _dtype("uint8", "u8", "uint", np.uint8)
uint16 = _dtype("uint16", "u16", "uint", np.uint16)
uint32 = _dtype("uint32", "u32", "uint", np.uint32)
uint64 = _dtype("uint64", "u64", "uint", np.uint64)
float16 = _dtype("float16", "f16", "float", np.float16, is_storage=True)
bfloat16 = _dtype("bfloat16", "bf16", "float", ml_dtypes.bfloat16, is_storage=True)
float8_e4m3fn = _dtype("float8_e4m3fn", "e4m3", "float", ml_dtypes.float8_e4m3fn, is_storage=True)
float8_e5m2 = _dtype("float8_e5m2", "e5m2", "float", ml_dtypes.float8_e5m2, is_storage=True)
float32 = _dtype("float32", "f32", "float", np.float32)
float64 = _dtype("float64", "f64", "float", np.float64)
# Of the Open Compute Project's Microscaling Formats 1.0, sections 5.3.3 and 5.4.1.
float4_e2m1fn = _dtype("float4_e2m1fn", "e2m1", "float", ml_dtypes.float4_e2m1fn, is_storage=True)
float8_e8m0fnu = _dtype("float8_e8m0fnu", "e8m0", "float", ml_dtypes.float8_e8m0fnu,
                        is_storage=True)  # fmt: skip

ALL: tuple[DType, ...] = (
    bool_,
    *(int8, int16, int32, int64),
    *(uint8, uint16, uint32, uint64),
    *(float8_e4m3fn, float8_e5m2, float16, bfloat16, float32, float64),
)
OF_BLOCKS: tuple[DType, ...] = (float4_e2m1fn, float8_e8m0fnu)
"""What bytes of blocks stand for: a code of four bits each, in the lower half, or the power of two
that a block's values share. Programs read them; data of users have no such dtypes.
"""
COMPUTE: tuple[DType, ...] = tuple(d for d in ALL if not d.is_storage)

_BY_NAME: dict[str, DType] = {}
for _each in (*ALL, *OF_BLOCKS):
    _BY_NAME[_each.name] = _each
    _BY_NAME[_each.short] = _each
_BY_NUMPY = {d.numpy: d for d in (*ALL, *OF_BLOCKS)}


def dtype_of(obj: Any) -> DType:
    """The DType that `obj` names: a DType, its name, a Python type, a NumPy dtype or an array.

    PyTorch's dtypes and tensors go by the names of their dtypes.

    Raises DTypeError for anything else.
    """
    if isinstance(obj, DType):
        return obj
    if isinstance(obj, str) and obj in _BY_NAME:
        return _BY_NAME[obj]
    if obj is float:
        return float32
    if obj is int:
        return int64
    if obj is bool:
        return bool_
    if obj is None:  # NumPy reads it as float64
        raise DTypeError("dtype: None is not an element type of Luminal; name one, as float32")
    try:
        source = obj if isinstance(obj, type) else getattr(obj, "dtype", obj)
        # Arrays of the other byte order, as files have them, hold the same elements.
        dtype = _BY_NUMPY.get(np.dtype(source).newbyteorder("="))
    except TypeError:
        # By the text, so that PyTorch need not be imported, or even be there.
        library, _, name = str(source).partition(".")  # as torch.bfloat16
        dtype = _BY_NAME.get(name) if library == type(source).__module__ else None
    if dtype is None:
        accepted = ", ".join(d.name for d in ALL)
        named = getattr(obj, "dtype", obj)  # of an array: its elements may be many
        raise DTypeError(
            f"dtype: {named!r} is not an element type of Luminal; use one of {accepted}"
        )
    return dtype


def default_dtype(scalar: bool | int | float) -> DType:
    """The dtype of a bare Python scalar: bool, int64 or float32."""
    return dtype_of(type(scalar))


def promote(a: DType, b: DType) -> DType:
    """The common type of two tensors: as NumPy within a kind, but int with float gives the float.

    Two storage floats that differ meet in float32. Raises DTypeError for a float of 8 bits and
    another dtype, as PyTorch.
    """
    if a == b:
        return a
    if a.is_moved_only or b.is_moved_only:
        narrow, other = (a, b) if a.is_moved_only else (b, a)
        raise DTypeError(
            f"{narrow.name} and {other.name} have no common dtype; cast one of them, as "
            f"x.cast('{other.name}')"
        )
    if a.is_float and b.is_float:
        if a.is_storage and b.is_storage:
            return float32
        return a if a.size > b.size else b
    if a.is_float or b.is_float:
        return a if a.is_float else b
    if a.kind == "bool" or b.kind == "bool":
        return b if a.kind == "bool" else a
    if a.kind == b.kind:
        return a if a.size > b.size else b
    unsigned, signed = (a, b) if a.kind == "uint" else (b, a)
    if signed.size > unsigned.size:
        return signed
    # Both ranges need one bit more than the unsigned one has. Beyond 64 bits NumPy takes float64.
    wider = 2 * unsigned.size
    return dtype_of(f"int{8 * wider}") if wider <= 8 else float64


def promote_weak(weak: DType, strong: DType) -> DType:
    """The common type where `weak` only counts if its kind (bool, integer, float) is higher."""
    if strong.is_float or not (strong.kind == "bool" or weak.is_float):
        return strong
    return promote(weak, strong)


def accumulator(dtype: DType) -> DType:
    """The type sums are formed in: f32 for 16-bit floats, i64/u64 for integers and bool."""
    if dtype.is_float:
        return dtype.compute
    if dtype.kind == "uint":
        return uint64
    return int64


def holds(wide: DType, narrow: DType) -> bool:
    """Has every value of `narrow` an equal one of `wide`, which converts back to it?

    Nothing asks it of bool and bool: the answer there is no.
    """
    if wide is narrow or narrow.kind == "bool":
        return wide is not bool_
    if wide.kind == "bool" or (narrow.is_float and not wide.is_float):
        return False
    if narrow.is_float:
        return wide.size > narrow.size and not (narrow is float8_e8m0fnu and wide is float16)
    if wide.is_float:
        # Up to 2**mantissa every integer is a float.
        mantissa = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8, "e4m3": 4, "e5m2": 3, "e2m1": 2,
                    "e8m0": 1}[wide.short]  # fmt: skip
        return narrow.bits - (narrow.kind == "int") <= mantissa
    if wide.kind == narrow.kind:
        return wide.size > narrow.size
    return wide.kind == "int" and wide.size > narrow.size


def names(dtypes: Sequence[DType]) -> str:
    """`f32, f64` for an error text."""
    return ", ".join(d.short for d in dtypes)
