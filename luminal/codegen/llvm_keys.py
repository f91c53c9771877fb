"""Sort keys as unsigned integers in the same order."""

from __future__ import annotations

from luminal.codegen.llvm_builder import FunctionBuilder, IRType, IRValue
from luminal.dtypes import DType


def ordered_bits(b: FunctionBuilder, dtype: DType, key: IRValue) -> IRValue:
    """The key's bits, made to count up as the keys do: -0 as +0, every NaN the greatest."""
    type_ = IRType(f"i{key.type.bits}")
    last, sign = b.const(type_, type_.bits - 1), b.const_bits(type_, 1 << (type_.bits - 1))
    if not dtype.is_float:
        return b.binary("xor", key, sign) if dtype.is_signed else key
    zero = b.fcmp("oeq", key, b.const(key.type, 0.0))
    bits = b.select(zero, b.const(type_, 0), b.cast("bitcast", key, type_))
    flipped = b.binary("xor", bits, b.binary("or", b.binary("ashr", bits, last), sign))
    return b.select(b.fcmp("uno", key, key), b.const(type_, -1), flipped)
