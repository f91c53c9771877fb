"""Operators of complex tensors, which are pairs of real ones here as everywhere in the library.

What moves elements or adds them up is the row of real tensors, done to both parts (LINEAR). The
library's own functions take ComplexTensors where that has a meaning. What neither covers stands
here: what makes complex numbers, takes them apart, transforms them, and operators with a number or
a factor of their own.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import cache
from typing import Any

import luminal as lm
from luminal.base.complex_dtypes import ComplexDType
from luminal.frontend.complex.parts import as_complex, joined, part_of
from luminal.frontend.complex.tensor import ComplexTensor
from luminal.frontend.handle import is_tensor
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.ops import registry
from luminal.torch_backend.ops.registry import COMPLEX_ROWS, Row, complex_row

LINEAR = frozenset(
    "alias clone detach lift_fresh_copy lift_fresh lift view _unsafe_view reshape split "
    "split_with_sizes unsafe_split unsafe_split_with_sizes squeeze unsqueeze expand repeat flip "
    "roll slice slice_scatter select select_scatter cat stack permute transpose t diagonal "
    "diagonal_scatter diag_embed rot90 tile tril triu unbind unfold sum mean cumsum index "
    "_unsafe_index index_select gather take slice_backward select_backward diagonal_backward "
    "zeros zeros_like new_zeros empty empty_like new_empty empty_strided new_empty_strided "
    "empty_permuted _efficientzerotensor zero index_put _unsafe_index_put index_add index_copy "
    "scatter_add embedding embedding_dense_backward masked_scatter trace neg "
    "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d "
    "replication_pad3d".split()
)
"""Operators that do the same to both parts."""

FILLED = {
    "constant_pad_nd": 2, "full": 1, "full_like": 1, "new_full": 2, "fill": 1, "scalar_tensor": 0,
}  # fmt: skip
"""Operators that do the same to both parts, but for a number at this place, which has two parts."""


def find(target: Any) -> Row | None:
    """The row of an operator with complex operands or a complex result."""
    if special := registry.find(target, COMPLEX_ROWS):
        return special
    plain, name = registry.find(target), str(target).split(".")[1]
    if plain is not None and (name in LINEAR or name in FILLED):
        return _both(plain, FILLED.get(name))
    return plain


@cache
def _both(plain: Row, filled: int | None) -> Row:
    """A row of real tensors, done to both parts. `filled`: the place of a number."""

    def parts(*args: Any, **named: Any) -> Any:
        values = [
            complex(x) if k == filled and isinstance(x, int | float) else x
            for k, x in enumerate(args)
        ]
        if any(is_tensor(x) and x.dtype.is_float for x in values):
            raise UnsupportedError("a real operand beside complex ones")
        return joined(
            *(
                plain(
                    *(part_of(x, part) for x in values),
                    **{key: part_of(x, part) for key, x in named.items()},
                )
                for part in ("real", "imag")
            )
        )

    if plain in registry.KNOW_RESULTS:
        registry.KNOW_RESULTS.add(parts)
    return parts


# --- what makes them, and takes them apart --------------------------------------------------------


registry.rows(
    {
        "complex": lm.complex,
        "polar": lm.polar,
        "view_as_complex": lm.view_as_complex,
        "view_as_real": lm.view_as_real,
        "sgn": ComplexTensor.sgn,
        "_neg_view": operator.neg,
        "mul": operator.mul,
        **dict.fromkeys(("div.Tensor", "div.Scalar", "true_divide"), operator.truediv),
        "eq": operator.eq,
        "ne": operator.ne,
        **dict.fromkeys(("mm", "bmm", "mv", "dot"), operator.matmul),
    },
    COMPLEX_ROWS,
)


@complex_row("_conj", "_conj_physical", "conj_physical", knows_results=True)
def conj(z: Any, *, results: Sequence[registry.Planned]) -> ComplexTensor:
    """The conjugate, also of a number: gradients of products with one have such calls."""
    if isinstance(z, ComplexTensor):
        return z.conj()
    kind = results[0].dtype.real  # type: ignore[union-attr]
    return lm.complex(lm.constant(z.real, kind), lm.constant(-z.imag, kind))


@complex_row("resolve_conj", "resolve_neg")
def resolved(z: Any) -> Any:
    return z


@complex_row("_to_copy", "prims::convert_element_type")
def to_copy(z: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
    if dtype is None:
        return z
    if not isinstance(dtype, ComplexDType):
        return z.real.cast(dtype)
    if isinstance(z, ComplexTensor):
        return z.to(dtype)
    real = z.cast(dtype.real)
    return ComplexTensor(real, lm.zeros_like(real))


@complex_row("copy")
def copy(z: Any, source: Any, non_blocking: bool = False) -> Any:
    return to_copy(source, z.dtype).expand(*z.shape)


@complex_row("ones")
def ones(size: Sequence[Any], dtype: Any = None) -> ComplexTensor:
    return ComplexTensor(lm.ones(tuple(size), dtype.real), lm.zeros(tuple(size), dtype.real))


@complex_row("eye")
def eye(n: Any, m: Any = None, dtype: Any = None) -> ComplexTensor:
    real = lm.eye(n, m, dtype=dtype.real)
    return ComplexTensor(real, lm.zeros_like(real))


@complex_row("ones_like")
def ones_like(x: Any, dtype: Any = None) -> ComplexTensor:
    return ones(x.shape, dtype or x.dtype)


@complex_row("new_ones")
def new_ones(x: Any, size: Sequence[Any], dtype: Any = None) -> ComplexTensor:
    return ones(size, dtype or x.dtype)


# --- arithmetic -----------------------------------------------------------------------------------


@complex_row("add")
def add(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a + (b if alpha == 1 else b * alpha)


@complex_row("sub")
def sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a - (b if alpha == 1 else b * alpha)


@complex_row("rsub")
def rsub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return sub(b, a, alpha)


@complex_row("addmm", "baddbmm", "addmv")
def addmm(x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    total = a @ b if alpha == 1 else (a @ b) * alpha
    if beta == 0:
        return total
    return total + (x if beta == 1 else x * beta)


@complex_row("addcmul")
def addcmul(x: Any, a: Any, b: Any, value: Any = 1) -> Any:
    return add(x, a * b, value)


@complex_row("linalg_vector_norm")
def vector_norm(
    z: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> lm.Tensor:
    """The norm of the absolute values, whose squares are at hand."""
    if ord == 2:
        parts = lm.stack([z.real, z.imag])
        dims = range(z.ndim) if dim is None else [k % z.ndim for k in dim] if z.ndim else []
        return lm.linalg.vector_norm(parts, 2, [0, *(k + 1 for k in dims)], keepdim)[
            0 if keepdim else ...
        ]
    return lm.linalg.vector_norm(z.abs(), ord, dim, keepdim)


@complex_row("logical_not")
def logical_not(z: ComplexTensor) -> lm.Tensor:
    return z == 0


@complex_row("vdot")
def vdot(a: Any, b: Any) -> Any:
    return (a.conj() if isinstance(a, ComplexTensor) else a) @ b


@complex_row("masked_fill")
def masked_fill(z: ComplexTensor, mask: lm.Tensor, value: Any) -> ComplexTensor:
    return lm.where(mask, as_complex(value, z), z)


# --- transforms -----------------------------------------------------------------------------------

_FORWARD = ("backward", "ortho", "forward")
"""What PyTorch's numbers mean for a transform: not scaled, by the square root, by the extent."""

_INVERSE = ("forward", "ortho", "backward")


@complex_row("_fft_r2c")
def fft_of_real(
    x: lm.Tensor, dim: Sequence[int], normalization: int, onesided: bool
) -> ComplexTensor:
    transform = lm.fft.rfftn if onesided else lm.fft.fftn
    return transform(x, dim=list(dim), norm=_FORWARD[normalization])


@complex_row("_fft_c2c")
def fft_of_complex(
    z: ComplexTensor, dim: Sequence[int], normalization: int, forward: bool
) -> ComplexTensor:
    if not dim:
        return z
    if forward:
        return lm.fft.fftn(z, dim=list(dim), norm=_FORWARD[normalization])
    return lm.fft.ifftn(z, dim=list(dim), norm=_INVERSE[normalization])


@complex_row("_fft_c2r")
def fft_to_real(
    z: ComplexTensor, dim: Sequence[int], normalization: int, last_dim_size: int
) -> lm.Tensor:
    extents = [*(z.shape[k] for k in dim[:-1]), last_dim_size]
    return lm.fft.irfftn(z, extents, list(dim), _INVERSE[normalization])
