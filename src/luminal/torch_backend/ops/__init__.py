"""What aten operators are in the library: importing this fills `registry.ROWS`."""

from luminal.torch_backend.ops import (
    bags,
    collectives,
    creation,
    gradients,
    losses,
    matrices,
    normalizations,
    pointwise,
    positions,
    products,
    randomness,
    reductions,
    resampling,
    segmented,
    shapes,
    windows,
)

__all__ = [
    "bags",
    "collectives",
    "creation",
    "gradients",
    "losses",
    "matrices",
    "normalizations",
    "pointwise",
    "positions",
    "products",
    "randomness",
    "reductions",
    "resampling",
    "segmented",
    "shapes",
    "windows",
]
