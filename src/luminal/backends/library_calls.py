"""Which products the libraries of devices compute: the dtypes that their vendors list, and what
each asks of operands.
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.base.dtypes import (
    DType,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int32,
)
from luminal.base.numerics import Class, Numerics
from luminal.base.records import dataclass
from luminal.kernel.library_product import Product, product_of
from luminal.program.steps import CallStep, CustomStep, KernelStep, NestStep
from luminal.shape.divisors import is_multiple

Dtypes = tuple[DType, DType, DType, DType]
"""Those of both factors, the accumulator and the result."""
WORD, ROW = 4, 16  # elements of a byte that products of integers, and of floats, are made of


@dataclass(frozen=True, slots=True)
class Able:
    """What a library can do: products of these dtypes, and those of them that may have a bias.

    `kind` is what must be allowed for its sums, and of its `algorithms` for a product so many are
    candidates of a search.
    """

    dtypes: frozenset[Dtypes]
    with_bias: frozenset[Dtypes] = frozenset()
    kind: Class = Class.ROUNDING
    algorithms: int = 1

    def computes(self, product: Product, numerics: Numerics) -> bool:
        """Does it compute the product, where numerics are so strict?"""
        a, b, accumulator, c = product.dtypes
        listed = self.dtypes if product.bias is None else self.with_bias
        if (a, b, accumulator, c) not in listed:
            return False
        if a.size == 1 and not _is_in_pieces(product, WORD if a is int8 else ROW):
            return False
        if a is int8:
            return True
        # A bias is added before the one rounding: digits are kept that the graph rounds away.
        return numerics.allows(max(self.kind, Class.DOMAIN if product.rounds else Class.EXACT))


# cuBLAS's documentation of cublasLtMatmul. "To use IMMA kernels": pointers of 4 bytes, rows of
# multiples of 4, the sum along the rows of both factors, and multiples of 4 of these and of the
# result's. "To use FP8 kernels": the same with 16, of the result's columns too.
def _is_in_pieces(product: Product, count: int) -> bool:
    """Do bytes lie as products of so many neighbours want them?"""
    a, b, c = product.a, product.b, product.c
    rows = product.extents[1:2] if count == ROW else ()
    lengths = (*rows, product.extents[2], product.extents[3], a.row, b.column, c.row)
    places = (a.start, b.start, a.batch, b.batch)
    return a.column == 1 == b.row and all(is_multiple(e, count) for e in (*lengths, *places))


_F32: Dtypes = (float32, float32, float32, float32)
_F64: Dtypes = (float64, float64, float64, float64)
_BYTES: Dtypes = (int8, int8, int32, int32)
_FLOATS = frozenset(
    [
        _F32,
        *(
            (narrow, narrow, float32, c)
            for narrow in (bfloat16, float16)
            for c in (narrow, float32)
        ),
    ]
)
_E4M3, _E5M2 = float8_e4m3fn, float8_e5m2
_EIGHTHS = frozenset(
    (a, b, float32, c)
    for a, b in ((_E4M3, _E4M3), (_E4M3, _E5M2), (_E5M2, _E4M3))
    for c in (bfloat16, float16, float32)
)
ALGORITHMS = 8
"""How many of those that a library's heuristic thinks best are tried."""
_OF_LT = Able(_FLOATS | {_F64, _BYTES}, _FLOATS, algorithms=ALGORITHMS)

ABLE = {
    "cublaslt": Able(
        _OF_LT.dtypes | _EIGHTHS,
        _FLOATS | {dtypes for dtypes in _EIGHTHS if dtypes[3] is not float32},
        algorithms=ALGORITHMS,
    ),
    "hipblaslt": _OF_LT,
    "cublaslt-tf32": Able(frozenset([_F32]), frozenset([_F32]), Class.DOMAIN, ALGORITHMS),
    "mps": Able(frozenset([_F32])),
    "rocblas": Able(_FLOATS | {_F64}),
}
"""The libraries by the names that target facts have for them."""


def algorithms(libraries: Sequence[str]) -> int:
    """The most algorithms that one of these libraries has for a product."""
    return max((ABLE[name].algorithms for name in libraries), default=1)


def library_calls(
    step: KernelStep | CustomStep, libraries: Sequence[str], numerics: Numerics
) -> tuple[str, ...]:
    """Which of the libraries of a machine may compute a kernel."""
    if not libraries or not isinstance(step, NestStep | CallStep):
        return ()
    product = product_of(step.fused)
    if product is None:
        return ()
    return tuple(name for name in libraries if ABLE[name].computes(product, numerics))
