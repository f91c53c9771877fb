"""`bench.trees`: what it times is the compiler."""

import pytest

from bench.trees_worker import PROGRAMS, TABLE


@pytest.mark.parametrize("name", [*PROGRAMS, *TABLE])
def test_inputs_are_drawn_once(name: str) -> None:
    """Else the numbers of large inputs are most of what a compile seems to take."""
    make = (PROGRAMS | TABLE)[name]
    arrays, again = make()[1], make()[1]
    large = [key for key in arrays if arrays[key].nbytes > 2**16]
    assert all(arrays[key] is again[key] for key in large)
