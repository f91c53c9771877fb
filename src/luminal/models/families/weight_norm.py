"""Weights that files hold as lengths and directions. Salimans and Kingma, arXiv 1602.07868."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array

_ENDS = (
    (".parametrizations.weight.original0", ".parametrizations.weight.original1"),
    (
        ".weight_g",
        ".weight_v",
    ),
)
"""What names of lengths and of directions end with, as PyTorch writes them now and did before."""


def without_weight_norms(weights: Mapping[str, Array]) -> dict[str, Array]:
    """The weights, those in two parts as one. Raises LoadError where the parts do not fit."""
    whole = dict(weights)
    for scale_end, direction_end in _ENDS:
        for name in weights:
            stem = name.removesuffix(scale_end)
            direction = stem + direction_end
            if stem != name and direction in weights:
                merged = _merged(name, whole.pop(name), whole.pop(direction))
                whole[f"{stem}.weight"] = merged
    return whole


def _merged(name: str, scale: Array, direction: Array) -> Array:
    """Directions of the lengths of `scale`, which has extent 1 in the axes of a direction."""
    if scale.ndim != direction.ndim or any(
        n not in (1, m) for n, m in zip(scale.shape, direction.shape, strict=True)
    ):
        raise LoadError(
            f"weights: {name!r} has shape {scale.shape}, which gives directions of shape "
            f"{direction.shape} no lengths"
        )
    axes = tuple(k for k, n in enumerate(scale.shape) if n == 1)
    wide = np.asarray(direction, np.float32)
    lengths = np.sqrt(np.square(wide, dtype=np.float64).sum(axes, keepdims=True))
    merged: Array = (wide * (np.asarray(scale, np.float32) / lengths)).astype(direction.dtype)
    return merged
