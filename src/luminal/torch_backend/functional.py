"""Calls that PyTorch takes apart before any table is asked, otherwise than its kernels compute.

Of `interpolate`: without the kernels' check, and by the given scale also along dims that keep their
size, which they copy. Of `multilabel_margin_loss`: with terms of labels behind the end. Of what
writes into an `out`: with a conversion to its dtype, which many kernels refuse.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_leaves

_DROPPED = {
    torch.nn.functional.scaled_dot_product_attention: (4, "dropout_p"),
    torch.dropout: (1, "p"),
}
"""Functions with a probability: where it stands, and its name."""

_INTERPOLATIONS = frozenset(
    getattr(torch.nn.functional, name)
    for name in "interpolate upsample upsample_nearest upsample_bilinear".split()
)


def has_labels_behind_an_end(module: GraphModule) -> bool:
    """Does a graph of Dynamo's have a loss whose lists of labels end with -1?"""
    loss = torch.nn.functional.multilabel_margin_loss
    return any(node.target is loss for node in module.graph.nodes)


def has_refused_call(module: GraphModule) -> bool:
    """Does a graph of Dynamo's interpolate from or to no pixels, or drop more than all of a value?
    PyTorch's kernels refuse that.
    """
    for node in module.graph.nodes:
        if node.target in _DROPPED:
            place, name = _DROPPED[node.target]
            share = node.args[place] if len(node.args) > place else node.kwargs.get(name, 0)
            if isinstance(share, int | float) and not 0 <= share <= 1:
                return True
    pictures = [x for node, named in _calls(module) for x in (_held(named["input"]), _held(node))]
    return any(n == 0 for x in pictures for n in x.shape[1:])


def has_out_of_another_dtype(module: GraphModule) -> bool:
    """Does a graph of Dynamo's have a call whose `out` has other dtypes than its results have?"""
    return any(
        node.kwargs.get("out") is not None and _dtypes_without_out(node) != _dtypes(node)
        for node in module.graph.nodes
    )


def _dtypes(node: Node) -> list[torch.dtype]:
    return [x.dtype for x in tree_leaves(map_aggregate(node.kwargs["out"], _given))]


def _dtypes_without_out(node: Node) -> list[torch.dtype]:
    """Those that a call's results have by themselves."""
    args, keywords = map_aggregate((node.args, node.kwargs), _given)
    named = {name: x for name, x in keywords.items() if name != "out"}
    with tree_leaves(keywords["out"])[0].fake_mode, torch.no_grad():
        return [x.dtype for x in tree_leaves(node.target(*args, **named))]  # type: ignore[operator]


def _given(x: Any) -> Any:
    return x.meta["example_value"] if isinstance(x, Node) else x


def copy_kept_sizes(module: GraphModule) -> None:
    """In a graph of Dynamo's, the scale along a dim that keeps its size is 1."""
    changed = False
    for node, named in _calls(module):
        x, factor = _held(named["input"]), named.get("scale_factor")
        if factor is None or not _copies(x, named.get("mode", "nearest")):
            continue
        count = x.ndim - 2
        scales = list(factor) if isinstance(factor, list | tuple) else [factor] * count
        sizes = zip(scales, x.shape[2:], _held(node).shape[2:], strict=True)
        # A scale such as 1.3 may round to the same size. The kernels then copy, while the
        # decomposition would interpolate by 1.3.
        kept = [1.0 if isinstance(s, float) and before == n else s for s, before, n in sizes]
        if kept != scales:
            node.args, node.kwargs, changed = (), {**named, "scale_factor": kept}, True
    if changed:
        module.recompile()


def _calls(module: GraphModule) -> Iterator[tuple[Node, dict[str, Any]]]:
    for node in module.graph.nodes:
        if node.target in _INTERPOLATIONS:
            yield node, inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments


def _copies(x: torch.Tensor, mode: str) -> bool:
    """Do the kernels of a mode copy along a dim that keeps its size? Others go by the scale."""
    if mode == "nearest":
        return x.ndim == 4
    return mode in ("linear", "bilinear", "trilinear") or (
        mode == "bicubic" and x.dtype is torch.uint8
    )


def _held(node: Any) -> torch.Tensor:
    held: torch.Tensor = node.meta["example_value"]
    return held
