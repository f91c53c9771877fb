"""`bench.trees`: what it times is the compiler."""

import pytest

from bench.trees_worker import PROGRAMS, TABLE
from tests.long_share import long_but


@pytest.mark.parametrize("name", long_but([*PROGRAMS, *TABLE], [*PROGRAMS, *TABLE][::4]))
def test_inputs_are_drawn_once(name: str) -> None:
    """Else the numbers of large inputs are most of what a compile seems to take."""
    make = (PROGRAMS | TABLE)[name]
    arrays, again = make()[1], make()[1]
    large = [key for key in arrays if arrays[key].nbytes > 2**16]
    assert all(arrays[key] is again[key] for key in large)
