"""The panels that weights lie in for vector CPUs."""

from __future__ import annotations

from luminal.kernel.layout import Panels
from luminal.schedule.vectors.lanes import FULL
from luminal.schedule.vectors.vector_target import VectorTarget

ROWS = 2
MANY = 128
SMALLEST = 1 << 15


def panels(target: VectorTarget) -> Panels:
    """The panels of a machine."""
    return Panels(
        register_bits=target.vector_bits,
        registers=target.tile_width,
        rows=ROWS,
        many=MANY,
        smallest=SMALLEST,
        far_bytes=target.l2_bytes,
        lines=target.l1_bytes // target.line_bytes,
        full=FULL,
        dots=target.dots,
    )
