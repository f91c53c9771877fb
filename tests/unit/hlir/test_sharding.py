"""The operations of ranks: their types, what they send, and the dims that a rank's place is."""

from __future__ import annotations

import re

import pytest

from luminal.base import dtypes
from luminal.base.errors import DTypeError
from luminal.hlir.attributes import CollectiveAttrs
from luminal.hlir.sharding import collective, coordinate, sent
from luminal.hlir.types import type_of
from luminal.shape.expression import const


@pytest.mark.parametrize(
    ("kind", "amount"),
    [("permute", 8), ("all_gather", 24), ("all_to_all", 6), ("reduce_scatter", 6),
     ("all_reduce", 12)],
)  # fmt: skip
def test_what_a_rank_of_four_sends_of_eight(kind: str, amount: int) -> None:
    assert sent(kind, const(8), 4) == const(amount)


def test_the_last_place_is_one_below_the_number_of_ranks() -> None:
    place = coordinate("data", 4)
    assert (place.lo, place.hi) == (0, 3)


@pytest.mark.parametrize("kind", ["all_reduce", "reduce_scatter"])
def test_bools_are_not_reduced(kind: str) -> None:
    bools = type_of((const(4),), dtypes.bool_)
    with pytest.raises(DTypeError, match=re.escape(f"Collective {kind}: bool")):
        collective([bools], CollectiveAttrs(kind, "data", 4, "Max"))
    (moved,) = collective([bools], CollectiveAttrs("all_to_all", "data", 4))
    assert moved == bools
