"""What work costs on a machine: what rules, the order of a search and the device go by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Costs:
    """Rough rates of one of a machine's `units`, per second; only their ratios decide anything.

    They follow from facts of the machine, so that equal machines make equal programs; what is
    measured (`runtime.roofline.Peaks`) only serves reports.
    """

    units: int  # cores, or what else works side by side
    contraction_flops: float  # of sums of products with many operations to a byte
    pointwise_flops: float
    memory: float  # bytes
    cache: float  # bytes, where all that a launch moves stays in `cache_bytes`
    cache_bytes: int
    launch: float  # seconds of a launch beside its work: a barrier, uneven shares

    def moving(self, size: float) -> float:
        """Bytes a second of one unit where `size` of them are moved."""
        return self.cache if size < self.cache_bytes else self.memory
