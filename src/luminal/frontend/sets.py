"""Which elements, how chosen: isin, combinations."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from luminal.errors import ShapeError
from luminal.frontend.binary import equal, graph_of
from luminal.frontend.handle import Operand, describe
from luminal.frontend.indexing import take
from luminal.frontend.movement import ravel, unsqueeze
from luminal.frontend.reduce import any

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def isin(
    elements: Operand,
    test_elements: Operand,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> Tensor:
    """True for each element that equals one of `test_elements`, or with `invert` none of them.

    Each is compared with each; `assume_unique` changes nothing.
    """
    graph = graph_of("isin", (elements, test_elements))
    x, values = graph.constant(elements), graph.constant(test_elements)
    found = any(equal(unsqueeze(x, -1), ravel(values)), -1)
    return ~found if invert else found


def combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """The ways to choose r elements of the 1-d x, in order, a row each. Its extent is literal."""
    if x.ndim != 1 or not x.extents[0].is_const:
        raise ShapeError(f"combinations: {describe(x)}; it takes one dim of a literal extent")
    if r < 0:
        raise ShapeError(f"combinations: r is {r}; give r >= 0")
    if r == 0:
        return x[:0]
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(x.extents[0].value), r))
    return take(x, np.array(rows, np.int64).reshape(-1, r), 0)
