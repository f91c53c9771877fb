"""What a core of a vector CPU does in how many cycles.

The numbers are a fit to some 500 programs of 27 subjects, timed on two cores of a Zen 4;
`python -m bench.costs` fits them on another machine. They order what a search tries, so that equal
machines search alike, and decide nothing that a clock does not decide again.
"""

from __future__ import annotations

from luminal.base.records import dataclass
from luminal.schedule.vectors.vector_target import VectorTarget


@dataclass(frozen=True, slots=True)
class Core:
    """What a core does in how many cycles, for counting a kernel's (`work.py`).

    `operation`, `load`, `store`: the time between two instructions of a vector each; `issue`: of an
    access beside arithmetic. The others are of what their names say.
    """

    target: VectorTarget
    hertz: float = 3.5e9
    multiply: float = 0.8
    operation: float = 0.9
    issue: float = 0.15
    load: float = 1.2
    store: float = 1.4
    latency: float = 5.0  # from a sum to the next that adds to it
    step: float = 1.5  # of a loop
    fold: float = 4.0  # of the lanes of a vector into one
    gather: float = 1.0  # loads for an element that lies apart
    scatter: float = 3.0  # stores, likewise
    turn: float = 3.0  # and for a vector of a block that is transposed in registers
    masked: float = 1.5  # times as many for an access under a mask
    chunk: float = 100.0  # handed out
    sort: float = 10.0  # of an element, by the logarithm of how many
    into_first: float = 1 / 64  # of a byte into the first-level cache,
    into_second: float = 1 / 24  # into the second,
    into_third: float = 1 / 20  # and from memory, whose rate all cores share
    jump: float = 4.0  # times as many for a byte that no prefetcher foresees
    foreseen: int = 1 << 11  # bytes from a line to the next that one bridges
    late: float = 0.15  # share of the shorter of computing and moving that the other does not hide
    kept: float = 0.75  # share of the last cache that one run leaves to the next
    ways: int = 8  # of a cache's sets
