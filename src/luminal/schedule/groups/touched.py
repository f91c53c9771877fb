"""What rows of lanes touch: sectors of memory, lines of a cache, banks of shared memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from luminal.expand.ir import Type

Array = NDArray[Any]

ROW = 32  # lanes whose accesses are one request
SECTOR = 32  # bytes that a cache gives and takes
LINE = 128  # bytes that a unit's own cache finds, and gives, in a cycle
BANKS, WORD = 32, 4  # of shared memory, and the bytes that a bank gives in a cycle


class Touched(NamedTuple):
    """The requests of a group, and what one of them takes on average: sectors, or turns of banks;
    the least that would do for what it reads or writes; and lines.
    """

    requests: int
    taken: float
    least: float
    lines: float


def touched(starts: Array, active: Array, type_: Type, is_shared: bool) -> Touched:
    """The requests of a group for elements of a type. `starts`: bytes, by lanes and elements;
    `active`: the lanes that take part.
    """
    lanes = starts.reshape(-1, ROW, starts.shape[1])
    taking = active.reshape(-1, ROW)
    lanes, taking = lanes[taking.any(1)], taking[taking.any(1)]
    if not len(lanes):
        return Touched(0, 0.0, 1.0, 0.0)
    first = lanes[np.arange(len(lanes)), taking.argmax(1)][:, None]
    lanes = np.where(taking[:, :, None], lanes, first)  # who does not take part asks for no more
    places = np.sort(lanes.reshape(len(lanes), -1), axis=1)
    used = _distinct(places) * type_.dtype.size
    if is_shared:
        least = np.ceil(used / (BANKS * WORD))
        turns = np.maximum(least, _turns(places // WORD))
        return Touched(len(lanes), float(turns.mean()), float(least.mean()), 0.0)
    sectors, least = _distinct(places // SECTOR), np.ceil(used / SECTOR)
    lines = np.maximum(_distinct(places // LINE), used / LINE)
    means = (float(counts.mean()) for counts in (sectors, least, lines))
    return Touched(len(lanes), *means)


def _distinct(rows: Array) -> Array:
    """How many different numbers each row has, which are in order."""
    counted: Array = 1 + (rows[:, 1:] != rows[:, :-1]).sum(1)
    return counted


def _turns(words: Array) -> Array:
    """Turns of the banks for rows of words in order: the different words of the busiest bank."""
    new = np.ones(words.shape, np.bool_)
    new[:, 1:] = words[:, 1:] != words[:, :-1]
    row = np.broadcast_to(np.arange(len(words))[:, None], words.shape)
    counted = np.bincount((row * BANKS + words % BANKS)[new], minlength=len(words) * BANKS)
    turns: Array = counted.reshape(-1, BANKS).max(1)
    return turns


def touched_by_squares(starts: Array, squares: int) -> Touched:
    """The requests of a group for squares of eight rows of 16 bytes each, a row of lanes at a time;
    a lane has the first byte of a row. A square takes a turn of the banks at least.
    """
    rows = starts.reshape(-1, ROW)[:, : 8 * squares].reshape(-1, 8)
    words = rows[:, :, None] // WORD + np.arange(16 // WORD)
    turns = _turns(np.sort(words.reshape(len(rows), -1), axis=1))
    return Touched(len(starts) // ROW, float(turns.mean()) * squares, float(squares), 0.0)
