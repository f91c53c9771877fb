"""Weights that a GGUF file stores in another order, or shifted: to Hugging Face's and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from luminal.errors import LoadError
from luminal.loaders.mapped import Array


class Heads(NamedTuple):
    """How many heads of queries, and of keys."""

    queries: int
    keys: int


class Change(NamedTuple):
    """`read`: an array of the file to Hugging Face's; `written`: the inverse."""

    read: Callable[[Array, Heads], Array]
    written: Callable[[Array, Heads], Array]


def rotated_halves(array: Array, heads: int) -> Array:
    """Rows of `heads` whose pairs (2i, 2i + 1) are rotated, as rows with pairs (i, i + half).

    Raises LoadError for rows that are not pairs of each head.
    """
    return _swapped(array, heads, (-1, 2))


def _neighbours(array: Array, heads: int) -> Array:
    """The inverse."""
    return _swapped(array, heads, (2, -1))


def _swapped(array: Array, heads: int, pairs: tuple[int, int]) -> Array:
    if not array.ndim or array.shape[0] % (2 * heads):
        raise LoadError(
            f"weights: {array.shape} for {heads} heads, which are rotated by pairs of rows; "
            f"its first dim must be a multiple of {2 * heads}"
        )
    split = array.reshape(heads, *pairs, *array.shape[1:])
    return split.swapaxes(1, 2).reshape(array.shape)


def _by_head_of_keys(array: Array, heads: Heads) -> Array:
    """All queries, all keys, all values as one head of keys after the other: queries, key, value.

    Raises LoadError for rows that are not whole heads.
    """
    queries, keys = heads
    rows = _rows_of_a_head(array, heads)
    ends = np.cumsum([queries * rows, keys * rows])
    parts = [part.reshape(keys, -1, rows, *array.shape[1:]) for part in np.split(array, ends)]
    return np.concatenate(parts, 1).reshape(array.shape)


def _one_after_another(array: Array, heads: Heads) -> Array:
    """The inverse."""
    queries, keys = heads
    rows = _rows_of_a_head(array, heads)
    split = array.reshape(keys, queries // keys + 2, rows, *array.shape[1:])
    parts = split[:, :-2], split[:, -2], split[:, -1]
    return np.concatenate([part.reshape(-1, *array.shape[1:]) for part in parts])


def _rows_of_a_head(array: Array, heads: Heads) -> int:
    queries, keys = heads
    whole = queries + 2 * keys
    if queries % keys or not array.ndim or array.shape[0] % whole:
        raise LoadError(
            f"weights: {array.shape} for {queries} heads of queries, {keys} of keys and values; "
            f"its first dim must be a multiple of {whole}"
        )
    return int(array.shape[0]) // whole


def _less_one(array: Array, heads: Heads) -> Array:
    return array.astype(np.float32) - np.float32(1)


def _plus_one(array: Array, heads: Heads) -> Array:
    return array.astype(np.float32) + np.float32(1)


def _transposed(array: Array, heads: Heads) -> Array:
    return array.T


INTERLEAVED_QUERIES = Change(
    lambda array, heads: rotated_halves(array, heads.queries),
    lambda array, heads: _neighbours(array, heads.queries),
)
INTERLEAVED_KEYS = Change(
    lambda array, heads: rotated_halves(array, heads.keys),
    lambda array, heads: _neighbours(array, heads.keys),
)
GROUPED = Change(_by_head_of_keys, _one_after_another)
PLUS_ONE = Change(_less_one, _plus_one)
TRANSPOSED = Change(_transposed, _transposed)
