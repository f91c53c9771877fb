"""Weights of Hugging Face's files under the names of Luminal's modules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.mapped import WEIGHT_DTYPES

Names = Sequence[tuple[str, str | None]]
"""Patterns and what replaces them, one after the other; None drops a name that has the pattern."""


def renamed(tensors: Mapping[str, Array], names: Names) -> dict[str, Array]:
    """The arrays under their new names. Raises LoadError for one that holds no floats."""
    weights = {}
    for theirs, array in tensors.items():
        name = new_name(theirs, names)
        if name is None:
            continue
        if array.dtype not in WEIGHT_DTYPES:
            raise LoadError(f"weights: {theirs!r} is {array.dtype}; it must be an array of floats")
        weights[name] = array
    return weights


def new_name(name: str, names: Names) -> str | None:
    """What becomes of one name."""
    for pattern, ours in names:
        if ours is None:
            if re.search(pattern, name):
                return None
        else:
            # One after the other, each on what the last one made: prefixes go first, so that later
            # patterns may begin at the name's start.
            name = re.sub(pattern, ours, name)
    return name
