"""What work costs on vector CPUs: guesses from their facts, measured on a few of them."""

from __future__ import annotations

from luminal.costs import Costs
from luminal.target import Target


def of(target: Target) -> Costs:
    """Those of a machine."""
    lanes = target.vector_lanes(4)
    return Costs(
        units=target.cores,
        contraction_flops=4e9 * lanes,
        pointwise_flops=1e9 * lanes,
        memory=10e9,
        cache=40e9,
        cache_bytes=target.l3_bytes // 2,
        launch=1e-6,
    )
