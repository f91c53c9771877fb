"""Backward operators that stay whole: the library's derivatives of the library's functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import luminal as lm
from luminal.frontend.movement.padding import pad as padded
from luminal.nn import functional
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.ops import products, windows
from luminal.torch_backend.ops.registry import ROWS, row

Tensor = lm.Tensor


@row("convolution_backward")
def convolution_backward(
    g: Tensor, x: Tensor, weight: Tensor, bias_sizes: Any, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int, wanted: Sequence[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    def convolved(x: Tensor, weight: Tensor) -> Tensor:
        return products.convolution(
            x, weight, None, stride, padding, dilation, transposed, output_padding, groups
        )

    of_x, of_weight = pulled(convolved, g, x, weight)
    of_bias = g.sum((0, *range(2, g.ndim))) if wanted[2] else None
    # All are recorded whatever is wanted: what nobody reads is no part of the program.
    return of_x if wanted[0] else None, of_weight if wanted[1] else None, of_bias


def pulled(function: Callable[..., Tensor], g: Tensor, *primals: Tensor) -> tuple[Tensor, ...]:
    """The gradients of `function` in its arguments."""
    _, pull = lm.vjp(function, *primals)
    return pull(g)


@row("avg_pool2d_backward")
def avg_pool2d_backward(g: Tensor, x: Tensor, *how: Any) -> Tensor:
    return pulled(lambda x: ROWS["aten.avg_pool2d"](x, *how), g, x)[0]


@row("avg_pool3d_backward")
def avg_pool3d_backward(g: Tensor, x: Tensor, *how: Any) -> Tensor:
    return pulled(lambda x: ROWS["aten.avg_pool3d"](x, *how), g, x)[0]


@row("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool2d_backward(g: Tensor, x: Tensor) -> Tensor:
    return pulled(lambda x: functional.adaptive_avg_pool2d(x, g.shape[-2:]), g, x)[0]


@row("_adaptive_avg_pool3d_backward")
def adaptive_avg_pool3d_backward(g: Tensor, x: Tensor) -> Tensor:
    return pulled(lambda x: functional.adaptive_avg_pool3d(x, g.shape[-3:]), g, x)[0]


@row("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward")
def replication_pad_backward(g: Tensor, x: Tensor, padding: Sequence[Any]) -> Tensor:
    return pulled(lambda x: padded(x, tuple(padding), "replicate"), g, x)[0]


@row("_cdist_backward")
def cdist_backward(g: Tensor, x: Tensor, other: Tensor, p: float, distances: Tensor) -> Tensor:
    if 0 not in (*g.shape, x.shape[-1]):  # the sum over a batch that x has not follows
        x = x.expand(*g.extents[:-2], *x.extents[-2:])
    return pulled(lambda x: lm.cdist(x, other, p), g, x)[0]


@row("_pdist_backward")
def pdist_backward(g: Tensor, x: Tensor, p: float, distances: Tensor) -> Tensor:
    return pulled(lambda x: lm.pdist(x, p), g, x)[0]


@row("masked_scatter_backward")
def masked_scatter_backward(g: Tensor, mask: Tensor, sizes: Sequence[Any]) -> Tensor:
    source = lm.zeros(tuple(sizes), g.dtype)
    return pulled(lambda x: lm.masked_scatter(lm.zeros_like(g), mask, x), g, source)[0]


@row("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(
    g: Tensor, x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int,
    align_corners: bool, wanted: Sequence[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    def sampled(x: Tensor, grid: Tensor) -> Tensor:
        return windows.grid_sampler(x, grid, interpolation_mode, padding_mode, align_corners)

    of_x, of_grid = pulled(sampled, g, x, grid)
    return of_x if wanted[0] else None, of_grid if wanted[1] else None


@row("_softmax_backward_data")
def softmax_backward(g: Tensor, y: Tensor, dim: int, dtype: Any) -> Tensor:
    flowing = g * y
    return (flowing - y * flowing.sum(dim, keepdim=True)).cast(dtype)


@row("_log_softmax_backward_data")
def log_softmax_backward(g: Tensor, y: Tensor, dim: int, dtype: Any) -> Tensor:
    return (g - y.exp() * g.sum(dim, keepdim=True)).cast(dtype)


@row("_scaled_dot_product_flash_attention_for_cpu_backward")
def attention_backward(
    g: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    dropout_p: float, is_causal: bool, attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    if dropout_p:
        raise UnsupportedError("attention with dropout in one operator")
    # The forward pass kept only the logarithm of each row's sum; the weights are computed again
    # from it, as flash attention does (Dao et al., arXiv 2205.14135), so that no square of the
    # length is stored.
    weights = lm.exp(
        products.scores(query, key, attn_mask, is_causal, scale) - logsumexp.unsqueeze(-1)
    )
    of_weights = g @ products.spread_heads(value, query).mT
    carried = (g * out).sum(-1, keepdim=True)
    of_scores = weights * (of_weights - carried) * products.factor(query, scale)
    of_query = of_scores @ products.spread_heads(key, query)
    of_key, of_value = of_scores.mT @ query, weights.mT @ g
    return (
        of_query.cast(query.dtype),
        _joined_heads(of_key, key).cast(key.dtype),
        _joined_heads(of_value, value).cast(value.dtype),
    )


def _joined_heads(g: Tensor, x: Tensor) -> Tensor:
    """The sums over the query heads that share a head of `x`."""
    if g.shape[1] == x.shape[1]:
        return g
    return g.unflatten(1, (x.shape[1], -1)).sum(2)


@row("embedding_dense_backward")
def embedding_backward(
    g: Tensor, ids: Tensor, count: Any, padding: int, by_frequency: bool
) -> Tensor:
    if by_frequency:
        raise UnsupportedError("aten.embedding_dense_backward: scale_grad_by_freq")
    width = g.shape[-1]
    flat = ids.reshape(-1)
    rows = g.reshape(-1, width)
    if not isinstance(padding, int) or padding >= 0:
        rows = lm.where((flat == padding).unsqueeze(1), 0, rows)
    return lm.zeros((count, width), g.dtype).index_add(0, flat, rows)


@row("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(g: Tensor, x: Tensor, kernel_size: Sequence[int], *how: Any) -> Tensor:
    *_, indices = how
    return _to_places(g, x, indices, len(kernel_size))


@row("adaptive_max_pool2d_backward")
def adaptive_max_pool2d_backward(g: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    return _to_places(g, x, indices, 2)


@row("adaptive_max_pool3d_backward")
def adaptive_max_pool3d_backward(g: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    return _to_places(g, x, indices, 3)


def _to_places(g: Tensor, x: Tensor, indices: Tensor, rank: int) -> Tensor:
    """Gradients added up where their values were found; indices count within a plane."""
    lead = x.shape[:-rank]
    flat = lm.zeros(x.shape, g.dtype).reshape(*lead, -1)
    places, values = indices.reshape(*lead, -1), g.reshape(*lead, -1)
    return flat.scatter_add(-1, places, values).reshape(*x.extents)


@row("fractional_max_pool2d_backward", "fractional_max_pool3d_backward")
def fractional_max_pool_backward(
    g: Tensor, x: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], indices: Tensor
) -> Tensor:
    return _to_places(g, x, indices, len(output_size))
