"""The arrays that terms read of a graph's Inputs, for tests that evaluate terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from luminal.algebra.lower import Lowered
from luminal.algebra.terms import Term
from luminal.base.errors import InputError
from luminal.hlir.attributes import InputAttrs
from luminal.hlir.ops import Value

Array = np.ndarray[Any, Any]


def inputs_of(lowered: Lowered, arrays: Mapping[str, Array]) -> dict[Value, Array]:
    """The arrays of Inputs by HLIR Value; InputError for one that is missing."""
    found: dict[Value, Array] = {}
    seen: set[Term] = set()
    stack = [root.term for root in lowered.roots]
    while stack:
        term = stack.pop()
        if term in seen:
            continue
        seen.add(term)
        stack.extend(term.args)
        if term.is_leaf and isinstance(attrs := term.attrs.value.node.attrs, InputAttrs):
            if attrs.name not in arrays:
                raise InputError(f"input {attrs.name!r} is not given; pass an array")
            found[term.attrs.value] = arrays[attrs.name]
    return found
