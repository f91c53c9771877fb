"""Multi-head attention with PyTorch's Parameters, masks and layouts."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, TypeAlias

from luminal.base.dtypes import bool_, float32
from luminal.base.errors import ShapeError
from luminal.frontend.handle import Array, describe
from luminal.frontend.movement.views import concat
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.memory.parameter import Parameter
from luminal.nn import init
from luminal.nn.attention import causal_mask
from luminal.nn.dropout import Dropout
from luminal.nn.linear import Linear
from luminal.nn.module import Module

Mask: TypeAlias = "Tensor | Array | None"
"""Bools that are True where attention is NOT allowed, or floats added to the scores."""


class MultiheadAttention(Module):
    """softmax(q k^T / sqrt(head_dim)) v per head, between an input and an output projection.

    Vaswani et al., arXiv 1706.03762. `kdim` and `vdim`: the widths of key and value.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        dtype: Any = float32,
    ) -> None:
        if embed_dim % num_heads:
            raise ShapeError(
                f"MultiheadAttention: embed_dim {embed_dim} does not divide into {num_heads} heads"
                "; choose heads that divide it"
            )
        self.heads, self.head_dim = num_heads, embed_dim // num_heads
        self.batch_first, self.add_zero_attn = batch_first, add_zero_attn
        self.dropout = Dropout(dropout)
        widths = embed_dim, kdim or embed_dim, vdim or embed_dim
        xavier = init.xavier_uniform
        # PyTorch keeps one matrix for all three where widths allow it; files have its name.
        if widths == (embed_dim,) * 3:
            self.in_proj_weight = init.parameter((3 * embed_dim, embed_dim), xavier, dtype)
        else:
            self.q_proj_weight = init.parameter((embed_dim, widths[0]), xavier, dtype)
            self.k_proj_weight = init.parameter((embed_dim, widths[1]), xavier, dtype)
            self.v_proj_weight = init.parameter((embed_dim, widths[2]), xavier, dtype)
        self.in_proj_bias = init.parameter((3 * embed_dim,), init.zeros, dtype) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype)
        if bias:
            self.out_proj.bias = init.parameter((embed_dim,), init.zeros, dtype)
        extra = partial(init.parameter, (1, 1, embed_dim), init.xavier_normal, dtype)
        self.bias_k = extra() if add_bias_kv else None
        self.bias_v = extra() if add_bias_kv else None

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Mask = None,
        need_weights: bool = True,
        attn_mask: Mask = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(length, batch, embed) each, or batch first, or without batch: the output, the weights.

        `attn_mask` is (queries, keys) or (batch * heads, queries, keys), `key_padding_mask`
        (batch, keys); True stands where attention is not allowed. `is_causal` without a mask makes
        one. Weights are (batch, queries, keys), per head if not averaged, None if not needed.
        """
        batched = query.ndim == 3
        if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
            shapes = ", ".join(describe(x) for x in (query, key, value))
            raise ShapeError(f"MultiheadAttention: {shapes}; all take 3 dims, or 2 without batch")
        inputs = [query, key, value]
        if not batched:
            inputs = [x.unsqueeze(0) for x in inputs]
        elif not self.batch_first:
            inputs = [x.transpose(0, 1) for x in inputs]
        q, k, v = self._projected(inputs)
        mask = self._mask(q, k, key_padding_mask, attn_mask, is_causal)
        k, v, mask = self._extended(k, v, mask)
        q, k, v = (x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2) for x in (q, k, v))
        # The queries are scaled, as in PyTorch: there are fewer of them than scores.
        scores = q * (1 / math.sqrt(self.head_dim)) @ k.mT
        weights = self.dropout((scores if mask is None else scores + mask).softmax(-1))
        output = self.out_proj((weights @ v).transpose(1, 2).flatten(-2))
        if not batched:
            output = output.squeeze(0)
        elif not self.batch_first:
            output = output.transpose(0, 1)
        if not need_weights:
            return output, None
        weights = weights.mean(1) if average_attn_weights else weights
        return output, weights if batched else weights.squeeze(0)

    def _projected(self, inputs: list[Tensor]) -> list[Tensor]:
        """Each (batch, length, embed)."""
        x = inputs[0]
        packed: Parameter | None = getattr(self, "in_proj_weight", None)
        if packed is not None:
            # Chunks are views: three products read parts of one matrix, and nothing is copied.
            matrices = list(self.read(packed, x).chunk(3, 0))
        else:
            held = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            matrices = [self.read(weight, x) for weight in held]
        products = [x @ matrix.mT for x, matrix in zip(inputs, matrices, strict=True)]
        bias = self.read(self.in_proj_bias, x)
        if bias is None:
            return products
        return [y + b for y, b in zip(products, bias.chunk(3, 0), strict=True)]

    def _mask(
        self, q: Tensor, k: Tensor, padding: Mask, attn: Mask, is_causal: bool
    ) -> Tensor | None:
        """The sum of all masks, added to the scores (batch, heads, queries, keys)."""
        graph, length, keys = q.graph, q.extents[1], k.extents[1]
        masks = []
        if attn is not None:
            mask = _added(graph.constant(attn), q)
            masks.append(mask.unflatten(0, (-1, self.heads)) if mask.ndim == 3 else mask)
        elif is_causal:
            masks.append(_added(~causal_mask(graph, length, keys), q))
        if padding is not None:
            mask = _added(graph.constant(padding), q)
            masks.append(mask.unsqueeze((-2, -3)))
        if not masks:
            return None
        return masks[0] + masks[1] if len(masks) > 1 else masks[0]

    def _extended(
        self, k: Tensor, v: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Further keys and values that every query sees: learned ones, zeros."""
        rows: list[tuple[Tensor, Tensor]] = []
        if self.bias_k is not None and self.bias_v is not None:
            rows.append((self.read(self.bias_k, k), self.read(self.bias_v, k)))
        if self.add_zero_attn:
            rows.append((k.graph.zeros((1, 1, 1), k.dtype), v.graph.zeros((1, 1, 1), v.dtype)))
        for new_k, new_v in rows:
            k = concat((k, new_k.expand(k.extents[0], 1, k.extents[2])), 1)
            v = concat((v, new_v.expand(v.extents[0], 1, v.extents[2])), 1)
            if mask is not None:
                # The further keys are for every query: nothing is added to their scores.
                mask = mask.pad([(0, 0)] * (mask.ndim - 1) + [(0, 1)])
        return k, v, mask


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """A mask as numbers to add: -inf where a bool is True."""
    if mask.dtype is not bool_:
        return mask
    return where(mask, mask.graph.constant(-math.inf, like.dtype), 0.0)
