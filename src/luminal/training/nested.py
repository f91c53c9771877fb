"""Nested states as arrays by name and JSON, and back: what a checkpoint stores without a pickle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from luminal.base.errors import InputError
from luminal.loaders.mapped import Array
from luminal.memory.part import Piece

ARRAY, PAIRS, TUPLE = "$array", "$pairs", "$tuple"  # keys of objects that stand for something else


def split(state: Any, path: str = "") -> tuple[Any, dict[str, Array | Piece]]:
    """(JSON, arrays by path) of dicts, lists, tuples, arrays, pieces of them, numbers, texts, None
    and bools.

    Raises InputError for anything else.
    """
    arrays: dict[str, Array | Piece] = {}
    return _encoded(state, path, arrays), arrays


def join(json: Any, arrays: Mapping[str, Any]) -> Any:
    """What `split` took, of the same types. Raises KeyError for an array that is missing."""
    if isinstance(json, list):
        return [join(item, arrays) for item in json]
    if not isinstance(json, dict):
        return json
    if ARRAY in json:
        return arrays[json[ARRAY]]
    if TUPLE in json:
        return tuple(join(item, arrays) for item in json[TUPLE])
    pairs = json[PAIRS] if PAIRS in json else json.items()
    return {key: join(value, arrays) for key, value in pairs}


def _encoded(state: Any, path: str, arrays: dict[str, Array | Piece]) -> Any:
    if isinstance(state, np.ndarray | np.generic | Piece):
        name = path
        while name in arrays:  # keys may hold dots, or be a number and its text
            name += "'"
        arrays[name] = state if isinstance(state, Piece) else np.asarray(state)
        return {ARRAY: name}
    if state is None or isinstance(state, bool | int | float | str):
        return state
    inner = f"{path}." if path else ""
    if isinstance(state, list | tuple):
        items = [_encoded(item, f"{inner}{k}", arrays) for k, item in enumerate(state)]
        return {TUPLE: items} if isinstance(state, tuple) else items
    if isinstance(state, Mapping) and all(isinstance(key, str | int) for key in state):
        values = {key: _encoded(value, f"{inner}{key}", arrays) for key, value in state.items()}
        # JSON's keys are texts, and of those a $ begins the ones that stand for something else.
        plain = all(isinstance(key, str) and not key.startswith("$") for key in values)
        return values if plain else {PAIRS: [[key, value] for key, value in values.items()]}
    raise InputError(
        f"checkpoint: {path or 'the state'} is a {type(state).__name__}; it stores dicts, lists, "
        "arrays, numbers, texts, bools and None"
    )
