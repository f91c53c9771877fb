"""Memory that a run must write before it reads, filled with what no result survives.

Under LUMINAL_POISON (all tests) every run begins with it in arena, scratch, outputs and the second
buffers of States, and so does every derived array: a value that nobody computed is NaN as a float,
not what happened to lie there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

PATTERN = (0x7FFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF)
"""Words of 8 bytes: NaN as every float type; the largest or -1 as integers of 4 and 8 bytes, so
that neither a maximum nor a minimum hides it; true as bool.
"""


def poison(arrays: Iterable[np.ndarray[Any, Any]]) -> None:
    """Fills row-major arrays, whatever their dtype."""
    for array in arrays:
        flat = array.reshape(-1).view(np.uint8)
        whole = flat.size // 16 * 16
        flat[:whole].view(np.uint64).reshape(-1, 2)[...] = PATTERN
        flat[whole:] = 0xFF
