"""Weights that a GGUF file stores in another order, or shifted: to Hugging Face's and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from luminal.base.errors import LoadError
from luminal.loaders.mapped import Array
from luminal.loaders.row_pairs import interleaved, rotated_halves
from luminal.memory.row_order import Interleaved


class Heads(NamedTuple):
    """How many heads of queries, and of keys; how many groups those of a state space or of linear
    attention have, `members` each, and how many numbers a state has for each feature.
    """

    queries: int
    keys: int
    groups: int = 1
    members: int = 1
    states: int = 0


class Change(NamedTuple):
    """`read`: an array of the file to Hugging Face's; `written`: the inverse. `by_rows`: both move
    whole rows, whatever these hold. `order`: that of the rows, where Parameters can keep it.
    """

    read: Callable[[Array, Heads], Array]
    written: Callable[[Array, Heads], Array]
    by_rows: bool = False
    order: Callable[[Array, Heads], Interleaved] | None = None


def _by_head_of_keys(array: Array, heads: Heads) -> Array:
    """All queries, all keys, all values as one head of keys after the other: queries, key, value.

    Raises LoadError for rows that are not whole heads.
    """
    queries, keys = heads[:2]
    rows = _rows_of_a_head(array, heads)
    ends = np.cumsum([queries * rows, keys * rows])
    parts = [part.reshape(keys, -1, rows, *array.shape[1:]) for part in np.split(array, ends)]
    return np.concatenate(parts, 1).reshape(array.shape)


def _one_after_another(array: Array, heads: Heads) -> Array:
    """The inverse of `_by_head_of_keys`."""
    queries, keys = heads[:2]
    rows = _rows_of_a_head(array, heads)
    split = array.reshape(keys, queries // keys + 2, rows, *array.shape[1:])
    parts = split[:, :-2], split[:, -2], split[:, -1]
    return np.concatenate([part.reshape(-1, *array.shape[1:]) for part in parts])


def _rows_of_a_head(array: Array, heads: Heads) -> int:
    queries, keys = heads[:2]
    whole = queries + 2 * keys
    if queries % keys or not array.ndim or array.shape[0] % whole:
        raise LoadError(
            f"weights: {array.shape} for {queries} heads of queries, {keys} of keys and values; "
            f"its first dim must be a multiple of {whole}"
        )
    return int(array.shape[0]) // whole


def _transposed(array: Array, heads: Heads) -> Array:
    return array.swapaxes(1, 2)


def _as_row(array: Array, heads: Heads) -> Array:
    return array.reshape(1, -1)


def _flat(array: Array, heads: Heads) -> Array:
    return array.reshape(-1)


# In float32: a norm's weight near 0 would lose its digits in the sum with 1 if it were rounded to
# 16 bits again.
def _less_one(array: Array, heads: Heads) -> Array:
    return array.astype(np.float32) - np.float32(1)


def _plus_one(array: Array, heads: Heads) -> Array:
    return array.astype(np.float32) + np.float32(1)


class Joined(NamedTuple):
    """One weight of Hugging Face's that the file has in two `parts`, with their ends; `written` is
    None where it is written whole.
    """

    parts: tuple[str, str]
    read: Callable[[Array, Array, Heads], Array]
    written: Callable[[Array, Heads], tuple[Array, Array]] | None


def after(first: Change, second: Change) -> Change:
    """Both changes: what a file has is read by the first one, then by the second."""
    return Change(
        lambda array, heads: second.read(first.read(array, heads), heads),
        lambda array, heads: first.written(second.written(array, heads), heads),
    )


def _interleaved(count: Callable[[Heads], int]) -> Change:
    """Rows of which those that turn together lie side by side, for so many heads."""
    return Change(
        lambda array, heads: rotated_halves(array, count(heads)),
        lambda array, heads: interleaved(array, count(heads)).rows(array),
        by_rows=True,
        order=lambda array, heads: interleaved(array, count(heads)),
    )


# llama.cpp's first models turned neighbouring features (Meta's layout), and its converter lays
# the rows of Hugging Face's checkpoints, which turn halves, back to that. Architectures that came
# later turn halves there too (NeoX's layout) and keep their rows: they have no change.
INTERLEAVED = {
    "attn_q": _interleaved(lambda heads: heads.queries),
    "attn_k": _interleaved(lambda heads: heads.keys),
}
# In models before Llama, fused rows lie by heads of keys; files in GGUF have them by kind.
GROUPED = Change(_by_head_of_keys, _one_after_another, by_rows=True)
# Matrices of experts that are multiplied from the right in folders.
TRANSPOSED = Change(_transposed, _transposed)
# A vector in the one kind of file, a matrix of one row in the other.
ONE_ROW = Change(_as_row, _flat)
# A norm's factor in the one kind of file, what it is more than 1 in the other.
PLUS_ONE = Change(_less_one, _plus_one)
