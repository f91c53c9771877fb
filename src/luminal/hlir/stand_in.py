"""What one process computes in place of a Collective: shapes and work are right, values are not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.hlir.attributes import CollectiveAttrs


# A search times kernels on one rank, and compares candidates with each other and with the algebra:
# all that needs is one meaning, the same everywhere, that costs what a copy costs.
def stand_in(attrs: CollectiveAttrs, x: NDArray[Any]) -> NDArray[Any]:
    """The operand itself in the result's shape: repeated where those of all ranks are joined, its
    first part where they are parted.
    """
    if attrs.kind == "all_gather":
        return np.concatenate([x] * attrs.ranks)
    return x[: len(x) // attrs.ranks] if attrs.kind == "reduce_scatter" else x
