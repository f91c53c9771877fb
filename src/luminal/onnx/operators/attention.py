"""Attention: the plain kinds by the library's own, others by ONNX's definition."""

from __future__ import annotations

from typing import Any

from luminal.frontend.tensor import Tensor
from luminal.nn import functional as F
from luminal.onnx.call import Call
from luminal.onnx.table import operator

_PLAIN = {"is_causal", "kv_num_heads", "q_num_heads", "scale"}


@operator("Attention", since=23)
def attention(call: Call, q: Tensor, k: Tensor, v: Tensor, *others: Any) -> Any:
    """softmax(q @ k.T * scale) @ v; heads stand in dim 1, or side by side in the last of three."""
    # Masks, caches and further outputs have rules that changed from version to version. ONNX's own
    # definition of the operator in the model's version has them right.
    more = any(x is not None for x in others) or len(call.node.output) > 1
    if more or not {attribute.name for attribute in call.node.attribute} <= _PLAIN:
        return call.defined()
    if q.ndim == 3:
        heads, shared = call.required("q_num_heads"), call.required("kv_num_heads")
        q, k, v = _split(q, heads), _split(k, shared), _split(v, shared)
        heads_of_y = _attended(call, q, k, v)
        return heads_of_y.transpose(1, 2).flatten(2)
    return _attended(call, q, k, v)


def _split(x: Tensor, heads: int) -> Tensor:
    return x.reshape(*x.extents[:2], heads, x.extents[2] // heads).transpose(1, 2)


def _attended(call: Call, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        is_causal=bool(call.attribute("is_causal", 0)),
        scale=call.attribute("scale"),
        enable_gqa=True,
    )
