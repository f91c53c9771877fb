"""Scaled dot-product attention, a plain composition: products, a mask, a softmax."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import ShapeError
from luminal.frontend.creation import position
from luminal.frontend.handle import along
from luminal.frontend.matrices.matmul import matmul, rounds
from luminal.frontend.matrices.products import up_together
from luminal.frontend.movement.views import reshape
from luminal.frontend.pointwise.binary import where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.random.keyed import dropout
from luminal.shape.expression import Expression, const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


@rounds("query", "key", "value")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    key_of_dropout: Tensor | None = None,
) -> Tensor:
    """softmax(query @ key.mT * scale + mask) @ value over (..., length, width), as PyTorch.

    `scale` is 1 / sqrt(width) by default. A bool mask says what takes part, another one is added;
    `is_causal` lets query i see keys 0 .. i. Rows that a mask hides all of give 0. `enable_gqa`
    lets groups of query heads (dim -3) share a head of key and value. It is rounded once, last.
    With `dropout_p`, weights are dropped by `key_of_dropout`, of `lm.random.key`.
    Raises ShapeError where shapes do not fit, DTypeError for dropout without a key.
    """
    if is_causal and attn_mask is not None:
        raise ShapeError("attention: is_causal and attn_mask; give one of them")
    (q, k, v), dtype = up_together(query, key, value)
    heads = q.extents[-3] if q.ndim > 2 else const(1)
    grouped = enable_gqa and q.extents[-3] != k.extents[-3]
    if grouped:
        q, k, v = _grouped(q, k, v)
    # No fused primitive: softmax between two products is what the compiler makes one streaming
    # kernel of, with masks and scales of any kind.
    scores = matmul(q, k.mT) * (_scale(q) if scale is None else scale)
    if grouped and attn_mask is not None:
        attn_mask = _grouped_mask(attn_mask, heads, q.extents[-4])
    scores = _masked(scores, attn_mask, is_causal)
    if attn_mask is None:
        out = matmul(dropout(scores.softmax(-1), dropout_p, key_of_dropout), v)
    else:
        # softmax of -inf alone is NaN; PyTorch's kernels give 0 for such rows.
        hidden = scores.amax(-1, keepdim=True) == -np.inf
        if dropout_p:  # of a row that is hidden, 0 where a gradient would else be NaN
            weights = where(hidden, 0.0, scores).softmax(-1)
            out = matmul(dropout(weights, dropout_p, key_of_dropout), v)
        else:
            out = _attended(scores, v)
        out = where(hidden, 0.0, out)
    if grouped:
        out = reshape(out, *out.extents[:-4], heads, *out.extents[-2:])
    return out.cast(dtype)


def _attended_derivative(g: Tensor, y: Tensor, scores: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Weights that are NaN, since a mask hides all of their row, count as 0."""
    weights = scores.softmax(-1)
    weights = where(weights == weights, weights, 0)
    weighted = matmul(g, v.mT) * weights
    return weighted - weights * weighted.sum(-1, keepdim=True), matmul(weights.mT, g)


@differentiated(_attended_derivative)
def _attended(scores: Tensor, v: Tensor) -> Tensor:
    return matmul(scores.softmax(-1), v)


def _scale(q: Tensor) -> Tensor | float:
    """The factor of the scores by default: 1 / sqrt(width)."""
    width = q.extents[-1]
    if width.is_const:
        return 1 / math.sqrt(width.value) if width.value else 0.0
    return q.graph.constant(width, q.dtype).rsqrt()


def _grouped(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query heads split into (shared, group), key and value heads with a group of one."""
    # Keys and values broadcast over the group as views: they are read once, not copied for each
    # head.
    shared = k.extents[-3]
    group = q.extents[-3].exact_div(shared)
    if group is None or v.extents[-3] != shared:
        raise ShapeError(
            f"attention: {q.extents[-3]} query heads do not divide by {shared} heads of keys and "
            f"{v.extents[-3]} of values"
        )
    split = reshape(q, *q.extents[:-3], shared, group, *q.extents[-2:])
    return split, k.unsqueeze(-3), v.unsqueeze(-3)


def _grouped_mask(mask: Tensor, heads: Expression, shared: Expression) -> Tensor:
    """A mask (..., heads, l, s) with its heads split as the queries' are."""
    if mask.ndim < 3 or mask.extents[-3] != heads:
        return mask if mask.ndim < 3 else mask.unsqueeze(-3)
    group = heads.exact_div(shared)
    assert group is not None
    return reshape(mask, *mask.extents[:-3], shared, group, *mask.extents[-2:])


def _masked(scores: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
    """The scores with -inf where nothing is to be seen, or with a mask added."""
    if is_causal:
        rows, columns = scores.extents[-2:]
        seen = along(1, columns) <= along(0, rows)
        mask = position(scores.graph, seen, (rows, columns), dtypes.bool_)
    if mask is None:
        return scores
    if mask.dtype is dtypes.bool_:
        return where(mask, scores, -np.inf)
    return scores + mask.cast(scores.dtype)
