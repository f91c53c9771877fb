"""What ranks tell one another before each run: their dims, and whether a rank refuses its inputs.

A rank binds dims from its own arrays, and its program takes it that the others bound the same: a
mean divides by the rows of all as if each rank had as many as this one, positions begin where the
rank before ends, and collectives move arrays of one size. Nothing else would notice, since a sum
over ranks has the shape that it should have whatever was added. Likewise a rank that refuses its
inputs, and goes on, would add its next run's values to those of the others' last. They ask at each
run, for what one rank remembers of earlier runs another may not: the k-th calls of all ranks are
one run, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from luminal.base.errors import DimError, InputError
from luminal.runtime.ranks import Engines

Array = np.ndarray[Any, Any]


class CommonDims:
    """Compares the dims `names` of this rank with those of all others, by the engines of all mesh
    axes; `parts` are those that a dim is cut into.
    """

    def __init__(self, names: tuple[str, ...], engines: Engines, parts: Mapping[str, int]) -> None:
        self._names = names
        self._engines = engines
        self._parts = parts
        self._label = f"the dims {', '.join(names)}" if names else "that inputs are accepted"
        self._is_first = True  # other ranks may still compile

    def check(self, dims: Mapping[str, int]) -> None:
        """Raises DimError, on all ranks alike, where some have other dims than the rest, and
        InputError where a rank refuses its inputs.
        """
        by_rank = self._told([0, *(dims[name] for name in self._names)])
        if by_rank[:, 0].any():
            rank = int(by_rank[:, 0].argmax())
            raise InputError(
                f"rank {rank} refuses what it was given for this run (its own error says why), so "
                "no rank has run"
            )
        if (by_rank != by_rank[0]).any():
            raise self._difference(by_rank[:, 1:])

    def refuse(self) -> None:
        """Tells the other ranks that this one refuses its inputs; they raise InputError."""
        self._told([1, *(0 for _ in self._names)])

    def _told(self, mine: Sequence[int]) -> Array:
        """What all ranks tell, a row each."""
        if self._is_first:
            for engine in self._engines.values():
                engine.check_same(self._label, "the program")
        heard = np.array(mine, np.int64)
        # Axis by axis what was heard so far, so that in the end each rank has heard all others:
        # they raise together, and none is left waiting.
        for engine in reversed([*self._engines.values()]):
            target = np.empty(engine.size * heard.size, np.int64)
            ticket = engine.start("all_gather", heard, target, label=self._label)
            engine.wait(ticket, first=self._is_first)
            heard = target
        self._is_first = False
        return heard.reshape(-1, len(mine))

    def _difference(self, by_rank: Array) -> DimError:
        """The error for the first dim in which a rank differs from rank 0."""
        column = int((by_rank != by_rank[0]).any(0).argmax())
        name, values = self._names[column], by_rank[:, column]
        rank = int((values != values[0]).argmax())
        what, fix = "runs at", "give all ranks the same"
        if self._parts.get(name, 1) > 1:
            what = "gives"
            fix = (
                f"it is cut into {self._parts[name]} equal parts: give each rank as many, pad what "
                "is short and mask it, or leave the rest out"
            )
        return DimError(
            f"{name}: rank 0 {what} {values[0]} and rank {rank} {what} {values[rank]}; {fix}"
        )
