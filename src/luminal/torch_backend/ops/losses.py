"""Losses that PyTorch checks the values of, which its decompositions do not."""

from __future__ import annotations

import luminal as lm
from luminal.nn import functional
from luminal.torch_backend.ops.refusals import refuse_where
from luminal.torch_backend.ops.registry import row

Tensor = lm.Tensor

REDUCTIONS = ("none", "mean", "sum")


@row("binary_cross_entropy")
def binary_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """The loss of probabilities; what lies outside of 0 .. 1, or is NaN, raises."""
    for name, values in (("input", x), ("target", target)):
        refuse_where(
            lm.logical_not((values >= 0) & (values <= 1)),
            RuntimeError(f"all elements of {name} should be between 0 and 1"),
        )
    return functional.binary_cross_entropy(x, target, weight, REDUCTIONS[reduction])
