"""In which order schedules of a kernel are timed."""

from __future__ import annotations

from collections.abc import Sequence

# Every second one: what the rules' order has early is found at most twice as late, whatever was
# learned.
EXPLORED = 2  # of so many schedules one is the next in the space's own order, which is its rules'


class Order:
    """The schedules of one kernel by number, each given once: 0, which is the present one, then
    those that should take least and the first of all that wait, in turns: so what is wrongly
    expected to be slow is seen as well.
    """

    def __init__(self, size: int) -> None:
        self._waiting = [*range(size)]
        self._given = 0

    def next(self, expected: Sequence[float]) -> int:
        """The next schedule, where the k-th should take `expected[k]` seconds."""
        is_explored = self._given % EXPLORED == 0
        number: int = (
            self._waiting[0] if is_explored else min(self._waiting, key=expected.__getitem__)
        )
        self._waiting.remove(number)
        self._given += 1
        return number
