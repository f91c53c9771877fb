"""Random programs on all ranks of a mesh give what they give on one.

Integers and bools bit by bit, floats within the reference's bounds, and bit by bit where no sum of
floats is cut. A seed is a program, a mesh and how leaves lie: `programs.drawn`.
"""

from __future__ import annotations

import numpy as np
import pytest

from luminal.base.errors import ShapeError
from luminal.distribute.layout import Cut
from luminal.distribute.parts import part
from luminal.shape.expression import symbol
from tests.distributed.compared import Seen, check
from tests.distributed.programs import drawn
from tests.long_share import mostly_long

CHUNK = 20
MOST_MASKED = 0.02


@pytest.mark.parametrize("chunk", mostly_long(range(25), 1))
def test_ranks_agree_with_one(chunk: int) -> None:
    seen = Seen()
    for seed in range(CHUNK * chunk, CHUNK * (chunk + 1)):
        try:
            seen += check(*drawn(seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert seen.masked <= MOST_MASKED * seen.elements, seen
    assert seen.collectives >= CHUNK, seen
    assert seen.by_bits >= seen.elements // 20, seen


def test_an_extent_known_at_run_time_that_does_not_divide_is_refused() -> None:
    layout = ((), (Cut("a", 3, symbol("s", 1, 9)),))
    with pytest.raises(ShapeError, match="dimension 1 of 16 is cut into 3 parts"):
        part(np.zeros((2, 16)), layout, {"a": 0}, {"s": 5})
