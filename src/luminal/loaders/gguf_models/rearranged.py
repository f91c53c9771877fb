"""Weights that a GGUF file stores in another order, or shifted: to Hugging Face's and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from luminal.base.errors import LoadError
from luminal.loaders.mapped import Array
from luminal.memory.row_order import Interleaved


class Heads(NamedTuple):
    """How many heads of queries, and of keys."""

    queries: int
    keys: int


class Change(NamedTuple):
    """`read`: an array of the file to Hugging Face's; `written`: the inverse. `by_rows`: both move
    whole rows, whatever these hold. `order`: that of the rows, where Parameters can keep it.
    """

    read: Callable[[Array, Heads], Array]
    written: Callable[[Array, Heads], Array]
    by_rows: bool = False
    order: Callable[[Array, Heads], Interleaved] | None = None


def interleaved(array: Array, heads: int) -> Interleaved:
    """How rows of `heads` lie whose pairs (2i, 2i + 1) are rotated.

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
    found: Array = interleaved(array, heads).value(array)
    return found


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


def _as_row(array: Array, heads: Heads) -> Array:
    return array.reshape(1, -1)


def _flat(array: Array, heads: Heads) -> Array:
    return array.reshape(-1)


def _of_one_channel(array: Array, heads: Heads) -> Array:
    return array[:, None] if array.ndim == 2 else array


def _of_its_channel(array: Array, heads: Heads) -> Array:
    return array[:, 0] if array.ndim == 3 else array


def _logarithms(array: Array, heads: Heads) -> Array:
    with np.errstate(all="ignore"):  # a damaged file may hold anything
        return np.log(-array.astype(np.float32))


def _negative_powers(array: Array, heads: Heads) -> Array:
    return -np.exp(array.astype(np.float32))


class Joined(NamedTuple):
    """One weight of Hugging Face's that the file has in two `parts`, with their ends; `written` is
    None where it is written whole.
    """

    parts: tuple[str, str]
    read: Callable[[Array, Array], Array]
    written: Callable[[Array], tuple[Array, Array]] | None


def _rows_in_turn(gates: Array, others: Array) -> Array:
    """(experts, out, in) twice to (experts, in, 2 out), gates in the even places."""
    both = np.stack((gates, others), 2)
    return both.reshape(len(gates), -1, gates.shape[2]).swapaxes(1, 2)


def _numbers_in_turn(gates: Array, others: Array) -> Array:
    return np.stack((gates, others), 2).reshape(len(gates), -1)


GATES_IN_TURN = Joined(
    ("ffn_gate_exps.weight", "ffn_up_exps.weight"),
    _rows_in_turn,
    lambda both: (both[..., ::2].swapaxes(1, 2), both[..., 1::2].swapaxes(1, 2)),
)
GATE_BIASES_IN_TURN = Joined(
    ("ffn_gate_exps.bias", "ffn_up_exps.bias"),
    _numbers_in_turn,
    lambda both: (both[:, ::2], both[:, 1::2]),
)
KEYS_AND_VALUES = Joined(
    ("attn_k_b.weight", "attn_v_b.weight"),
    lambda keys, values: np.concatenate((keys.swapaxes(1, 2), values), 1).reshape(
        -1, values.shape[2]
    ),
    None,
)
GATES_FIRST = Joined(
    ("ffn_gate_exps.weight", "ffn_up_exps.weight"),
    lambda gates, others: np.concatenate((gates, others), 1),
    lambda both: tuple(np.split(both, 2, 1)),  # type: ignore[arg-type, return-value]
)
INTERLEAVED_QUERIES = Change(
    lambda array, heads: rotated_halves(array, heads.queries),
    lambda array, heads: interleaved(array, heads.queries).rows(array),
    by_rows=True,
    order=lambda array, heads: interleaved(array, heads.queries),
)
INTERLEAVED_KEYS = Change(
    lambda array, heads: rotated_halves(array, heads.keys),
    lambda array, heads: interleaved(array, heads.keys).rows(array),
    by_rows=True,
    order=lambda array, heads: interleaved(array, heads.keys),
)
GROUPED = Change(_by_head_of_keys, _one_after_another, by_rows=True)
PLUS_ONE = Change(_less_one, _plus_one)
TRANSPOSED = Change(_transposed, _transposed)
TRANSPOSED_EXPERTS = Change(
    lambda array, heads: array.swapaxes(1, 2), lambda array, heads: array.swapaxes(1, 2)
)
ONE_ROW = Change(_as_row, _flat)
BY_CHANNEL = Change(_of_one_channel, _of_its_channel)
LOGARITHMS = Change(_logarithms, _negative_powers)
