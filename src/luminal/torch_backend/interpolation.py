"""Interpolation as PyTorch's kernels do it. AOTAutograd takes it apart before it asks any table:
without their check, and by the given scale also along dims that keep their size, which they copy.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

_FUNCTIONS = frozenset(
    getattr(torch.nn.functional, name)
    for name in "interpolate upsample upsample_nearest upsample_bilinear".split()
)


def samples_no_pixels(module: GraphModule) -> bool:
    """Does a graph of Dynamo's interpolate a picture of no pixels? PyTorch refuses that."""
    return any(n == 0 for _, named in _calls(module) for n in _held(named["input"]).shape[1:])


def copy_kept_sizes(module: GraphModule) -> None:
    """In a graph of Dynamo's, the scale along a dim that keeps its size is 1."""
    changed = False
    for node, named in _calls(module):
        x, given = _held(named["input"]), named.get("scale_factor")
        if given is None or not _copies(x, named.get("mode", "nearest")):
            continue
        count = x.ndim - 2
        scales = list(given) if isinstance(given, list | tuple) else [given] * count
        sizes = zip(scales, x.shape[2:], _held(node).shape[2:], strict=True)
        kept = [1.0 if isinstance(s, float) and before == n else s for s, before, n in sizes]
        if kept != scales:
            node.args, node.kwargs, changed = (), {**named, "scale_factor": kept}, True
    if changed:
        module.recompile()


def _calls(module: GraphModule) -> Iterator[tuple[Node, dict[str, Any]]]:
    for node in module.graph.nodes:
        if node.target in _FUNCTIONS:
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
