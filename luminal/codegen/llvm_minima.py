"""The lesser of two floats, HLIR's `-max(-x, -y)`, and the magnitude of one, `max(x, -x)`, each as
one operation.

The negative of a value and the greater of two negatives are noted as they are emitted; the negative
of the latter is then the lesser of the values themselves. Bits are the same: NaN wins in both, and
-0 lies below +0. What nobody reads any more, LLVM drops. A constant's negative is a constant, which
LLVM knows to be no NaN.
"""

from __future__ import annotations

import re

from luminal.codegen.llvm_builder import FunctionBuilder, IRValue

FLOAT = re.compile(r"0x([0-9A-F]{16})\b")  # f32 and f64 as LLVM writes them, by a double's bits
SIGN = 1 << 63


def product(b: FunctionBuilder, x: IRValue, y: IRValue) -> IRValue:
    """x * y."""
    for value, factor in ((x, y), (y, x)):
        if factor.name == b.const(factor.type, -1.0).name:
            return _negative(b, value, factor)
    return b.binary("fmul", x, y)


def greater(b: FunctionBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The greater; NaN where either is NaN."""
    for value, other in ((x, y), (y, x)):
        if b.negated.get(other.name) == value:
            return b.intrinsic("llvm.fabs", x.type, [value])
    found = b.intrinsic("llvm.maximum", x.type, [x, y])
    first, second = (b.negated.get(each.name) or _constant_negative(each) for each in (x, y))
    if first is not None and second is not None:
        b.negated_maxima[found.name] = first, second
    return found


def _negative(b: FunctionBuilder, x: IRValue, minus_one: IRValue) -> IRValue:
    constant, operands = _constant_negative(x), b.negated_maxima.get(x.name)
    if constant is not None:
        return constant
    if operands is not None:
        return b.intrinsic("llvm.minimum", x.type, operands)
    made = b.binary("fmul", x, minus_one)
    b.negated[made.name] = x
    return made


def _constant_negative(x: IRValue) -> IRValue | None:
    """-x, where x is one float in all lanes."""
    if x.name.startswith(("%", "@", "<")):
        return None
    flipped, count = FLOAT.subn(lambda bits: f"0x{int(bits[1], 16) ^ SIGN:016X}", x.name)
    return IRValue(flipped, x.type) if count == 1 else None
