"""Products of matrices, and sums over products."""

from __future__ import annotations

from typing import Any

import luminal as lm
from luminal.frontend.tensor import Tensor
from luminal.onnx.call import Call
from luminal.onnx.operators import codes
from luminal.onnx.table import operator


@operator("MatMul")
def matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """Multiplies matrices as NumPy's matmul does; integers wrap."""
    by_codes = codes.product(call, a, b)
    return (lm.matmul(a, b) if by_codes is None else by_codes).cast(a.dtype)


@operator("Gemm")
def gemm(call: Call, a: Tensor, b: Tensor, c: Any = None) -> Tensor:
    """alpha * A @ B + beta * C, which may broadcast in every version here."""
    call.unneeded("broadcast")
    a = codes.turned(call, a) if call.attribute("transA", 0) else a
    b = codes.turned(call, b) if call.attribute("transB", 0) else b
    alpha, beta = call.attribute("alpha", 1.0), call.attribute("beta", 1.0)
    by_codes = codes.product(call, a, b)
    product = lm.matmul(a, b) if by_codes is None else by_codes
    # No product by 1: it would be one more operation on each element, and most exports have none.
    if alpha != 1:
        product = product * alpha
    if c is not None:
        product = product + (c if beta == 1 else c * beta)
    return product.cast(a.dtype)


@operator("Einsum")
def einsum(call: Call, *xs: Tensor) -> Tensor:
    """A sum over products, by its equation."""
    return lm.einsum(call.required("equation"), *xs)


@operator("Det")
def det(call: Call, x: Tensor) -> Tensor:
    """Gives determinants of square matrices."""
    return lm.det(x)
