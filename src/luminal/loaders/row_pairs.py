"""Rows that rotary positions turn together, where a file has them side by side (llama2.c, GGUF)."""

from __future__ import annotations

from luminal.base.errors import LoadError
from luminal.loaders.mapped import Array
from luminal.memory.row_order import Interleaved


def interleaved(array: Array, heads: int) -> Interleaved:
    """The order of the rows of `heads` whose pairs (2i, 2i + 1) turn together.

    Raises LoadError for rows that are not pairs of each head.
    """
    if not array.ndim or array.shape[0] % (2 * heads):
        raise LoadError(
            f"weights: {array.shape} for {heads} heads, which are rotated by pairs of rows; "
            f"its first dim must be a multiple of {2 * heads}"
        )
    return Interleaved(heads)


def rotated_halves(array: Array, heads: int) -> Array:
    """Rows in pairs (2i, 2i + 1) as rows in pairs (i, i + half). LoadError as `interleaved`."""
    halves: Array = interleaved(array, heads).value(array)
    return halves
