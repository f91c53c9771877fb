"""What differs between programs of ranks that should run one."""

from __future__ import annotations

from itertools import zip_longest

from luminal.base.errors import CollectiveError


def difference_error(label: str, rank: int, first: str, other: str) -> CollectiveError:
    """The error where rank 0 and `rank` have different texts; it names the first such line."""
    number, mine, theirs = _first_difference(first, other)
    return CollectiveError(
        f"{label} differs between ranks, first in line {number}: rank 0 has {mine!r}, rank {rank} "
        f"has {theirs!r}; all ranks must build and compile the same graph"
    )


def _first_difference(one: str, other: str) -> tuple[int, str, str]:
    """The number of a line, from 1, and that line of both texts; "" is a line past the end."""
    lines = zip_longest(one.split("\n"), other.split("\n"), fillvalue="")
    return next(
        (number, first, second)
        for number, (first, second) in enumerate(lines, 1)
        if first != second
    )
