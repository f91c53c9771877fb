"""Products of matrices, convolutions, attention, linear algebra."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import luminal as lm
from luminal.nn import functional
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.ops.registry import row, rows

Tensor = lm.Tensor

_SAME = "addmm addmv addr baddbmm bmm dot mm mv vdot".split()


def _kept(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A product in its first operand's dtype: sums of narrow integers wrap, as PyTorch's do."""

    def product(x: Tensor, *others: Any, **how: Any) -> Tensor:
        return function(x, *others, **how).cast(x.dtype)

    return product


rows({name: _kept(getattr(lm, name)) for name in (*_SAME, "linear", "matmul")})

_MATRICES = 32  # that are added one after the other, with a rounding each


@row("addbmm")
def addbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """Sums of 16 bits are rounded after each matrix, as PyTorch's are; of more matrices, once."""
    count = batch1.shape[0]
    if not x.dtype.is_storage or not isinstance(count, int) or not 0 < count <= _MATRICES:
        return lm.addbmm(x, batch1, batch2, beta=beta, alpha=alpha).cast(x.dtype)
    for k in range(count):
        x = lm.addmm(x, batch1[k], batch2[k], beta=1 if k else beta, alpha=alpha)
    return x


_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}


@row("convolution")
def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    rank = weight.ndim - 2
    stride, padding, dilation, output_padding = (
        tuple(numbers) * (rank // len(numbers))
        for numbers in (stride, padding, dilation, output_padding)
    )
    if transposed:
        return _TRANSPOSED[rank](x, weight, bias, stride, padding, output_padding, groups, dilation)
    return _CONVOLUTIONS[rank](x, weight, bias, stride, padding, dilation, groups)


@row("_scaled_dot_product_flash_attention_for_cpu")
def attention(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if dropout_p:
        raise UnsupportedError("attention with dropout in one operator")
    grouped = query.shape[1] != key.shape[1]
    out = functional.scaled_dot_product_attention(
        query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=grouped
    )
    return out, lm.logsumexp(scores(query, key, attn_mask, is_causal, scale), -1)


def scores(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> Tensor:
    """Masked, scaled products of queries and keys, whose heads may be fewer, in float32."""
    q, k = query.cast(query.dtype.compute), spread_heads(key.cast(key.dtype.compute), query)
    products = (q @ k.mT) * factor(query, scale)
    if is_causal:
        rows_, columns = lm.iota(products.shape[-2:], 0), lm.iota(products.shape[-2:], 1)
        return lm.where(columns <= rows_, products, -lm.inf)
    if mask is None:
        return products
    return lm.where(mask, products, -lm.inf) if mask.dtype is lm.bool_ else products + mask


def spread_heads(x: Tensor, query: Tensor) -> Tensor:
    """Heads of keys or values once for each query head of their group."""
    heads, shared = query.shape[1], x.shape[1]
    return x if heads == shared else lm.repeat_interleave(x, heads // shared, 1)


def factor(query: Tensor, scale: float | None) -> float | Tensor:
    """What scores are multiplied by: 1 over the root of the width if nothing else is given."""
    width = query.shape[-1]
    if scale is not None:
        return scale
    if isinstance(width, int):
        return float(width) ** -0.5
    return lm.constant(width, query.dtype.compute).rsqrt()


@row("_cdist_forward")
def cdist(x1: Tensor, x2: Tensor, p: float, compute_mode: Any = None) -> Tensor:
    return lm.cdist(x1, x2, p)


@row("_grouped_mm", "transformers::grouped_mm_fallback")
def grouped_product(
    x: Tensor, weight: Tensor, offsets: Tensor, bias: None = None, dtype: Any = None
) -> Tensor:
    """Rows times the matrix of their group; `offsets` are the groups' ends."""
    if x.ndim != 2 or weight.ndim != 3 or bias is not None:
        raise UnsupportedError("grouped products: of rows with a stack of matrices only")
    number = lm.iota((x.shape[0],), 0, offsets.dtype)
    group = lm.searchsorted(offsets, number, right=True)
    return lm.einsum("tk,tkn->tn", x, weight[group])


@row("_pdist_forward")
def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    return lm.pdist(x, p)


@row("linalg_cross")
def cross(x: Tensor, other: Tensor, dim: int = -1) -> Tensor:
    return lm.linalg.cross(x, other, dim)
