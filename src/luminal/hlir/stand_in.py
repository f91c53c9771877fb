"""What one process computes in place of a Collective: shapes and work are right, values are not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.hlir.attributes import CollectiveAttrs


# A search times kernels on one rank, and compares candidates with each other and with the algebra:
# all that needs is one meaning, the same everywhere, that costs what a copy costs.
def stand_in(attrs: CollectiveAttrs, x: NDArray[Any]) -> NDArray[Any]:
    """The operand itself in the result's shape: repeated where ranks are stacked, its first part
    where they are parted.
    """
    if attrs.kind == "all_gather":
        return np.broadcast_to(x, (attrs.ranks, *x.shape))
    return x[0] if attrs.kind == "reduce_scatter" else x
