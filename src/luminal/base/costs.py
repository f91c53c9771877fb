"""What work costs on a machine: what rules, the order of a search and the device go by.

Everything that a rule above the backends knows of speed is here, as a fact with a unit; a rule that
holds on every machine (what is equal, what bounds a compile's time) has its numbers beside it.
"""

from __future__ import annotations

from collections.abc import Mapping

from luminal.base.dots import Dot
from luminal.base.records import dataclass


@dataclass(frozen=True, slots=True)
class Weights:
    """What operations cost an element, in simple ones (an addition): `load` of a value from memory
    that another kernel wrote, `dear` of those that are not simple.
    """

    load: int
    dear: Mapping[str, int]

    def of(self, op: str) -> int:
        """The weight of an operation by its name."""
        return self.dear.get(op, 1)


@dataclass(frozen=True, slots=True)
class Shares:
    """When work leaves units idle, and into what it is cut then.

    The numbers are a machine's, not those of the units that a run has: bits depend on where sums
    are cut, and shall not depend on how many threads there are.
    """

    points: int  # results of a reduction below which units would have none
    columns: int  # results that lie side by side, and are one share together: rows are read whole
    blocks: int  # of results of reductions in one pass, likewise
    passes: int  # such blocks, below which the pass's steps are cut; 0: none's are
    rows: int  # of a product, that a group sums at once for each column, at most; 0: none are
    lanes: int  # results in such a block
    scattered: int  # positions of a sum at computed positions that may be added in any order
    work: int  # elements read from which idle units matter
    chunks: int  # that a reduction is cut into, at most: even shares for all units
    chunk: int  # elements of one that is worth handing out
    part: int  # elements added for each one of a private part, at least: it is written and read
    tried: tuple[int, ...]  # chunks that a search tries
    beside: int = 1  # rows of a scan that lie side by side and are one share together
    owners: int = 0  # of what is stored at computed positions, each of which walks all; 0: none
    sorted: int = 0  # bytes of keys and places that a group sorts alone; 0: rows of any length

    def leave_idle(self, points: int, work: int) -> bool:
        """Would a reduction of `work` elements to so few points leave units idle, and does that
        matter?
        """
        return points < self.points and work > self.work


@dataclass(frozen=True, slots=True)
class LongSums:
    """Contractions that are cut though all units have work: operands that leave the caches before
    the next results want them come from memory every time.
    """

    length: int  # positions from which vectors of operands are more than a cache holds
    chunk: int  # positions, at least: adding up the chunks' sums then costs little beside
    points: int  # results, at most: as many are stored for each chunk


@dataclass(frozen=True, slots=True)
class Tiles:
    """Convolutions that are worth transforming into tiles (`selection/winograd.py`)."""

    channels: int  # summed, and results: fewer are soon multiplied
    fewest: int  # tiles: fewer read the larger weights too seldom,
    most: int  # more leave the cache that is near, where adding takes as long as multiplying
    colliding: int  # tiles, and their multiples, whose channels would meet in a cache's sets
    columns: int  # tiles that fill vectors: fewer stand beside the channels


@dataclass(frozen=True, slots=True)
class Windows:
    """Cycles that reading windows of a picture takes, where a multiplication of a vector takes one
    (`selection/pictures.py`).
    """

    lanes: int  # of a vector
    full: float  # of the lanes at work, at least, for which weights are packed
    rows: int  # results that share a loaded vector, at most
    load: float  # of a vector,
    mask: float  # and more where some of it lies outside,
    edge: float  # or all of it, for each of the rows around a picture: windows of few taps, which
    # have few such rows, are unrolled whole and have no masks in the middle
    parts: float  # of a product of vectors whose lanes are parts of one sum
    apart: float  # of each lane that is loaded alone,
    across: float  # and of one that is stored so, vectors being transposed in registers
    spread: float  # of one value for all lanes
    copied: float  # of an element of a picture that is stored as it lies,
    turned: float  # and with other neighbours
    launch: float


# Rates and what follows from them for programs are one record, so a rule above the backends goes by
# it and by nothing else that is about a machine. Numbers that stand beside a rule bound a compile's
# time or are the rule's mathematics.
@dataclass(frozen=True, slots=True)
class Costs:
    """Rough rates of one of a machine's `units`, per second, and what follows for programs.

    They follow from facts of the machine, so that equal machines make equal programs; what is
    measured (`runtime.roofline.Peaks`) only serves reports. Only ratios decide anything.
    """

    units: int  # cores, or what else works side by side
    contraction_flops: float  # of sums of products with many operations to a byte
    pointwise_flops: float
    memory: float  # bytes
    cache: float  # bytes, where all that a launch moves stays in `cache_bytes`
    cache_bytes: int
    launch: float  # seconds of a launch beside its work: a barrier, uneven shares
    row_bytes: int  # of the largest row that a kernel keeps beside a unit
    streams: int  # values that one kernel stores, at most: it has as many places to write to
    products: int  # of one matrix with several, of which one kernel's registers hold the sums
    decoded_rows: int  # of a product, at most, whose matrix instructions take what it unpacks
    scaled: tuple[Dot, ...]  # what multiplies blocks with scales as they lie
    expansion: int  # times as many elements as are read, which cost less to compute than to read
    weights: Weights
    shares: Shares
    long_sums: LongSums
    tiles: Tiles
    windows: Windows | None  # None: pictures stay as they lie

    def moving(self, size: float) -> float:
        """Bytes a second of one unit where `size` of them are moved."""
        return self.cache if size < self.cache_bytes else self.memory

    def seconds(self, flops: float, size: float) -> float:
        """The seconds of so many operations while `size` bytes are moved, by all units."""
        return max(flops / self.contraction_flops, size / self.moving(size)) / self.units

    @property
    def launch_work(self) -> int:
        """Simple operations that a unit does in the time of a launch."""
        return round(self.launch * self.pointwise_flops)


@dataclass(frozen=True, slots=True)
class Link:
    """What neighbours along one mesh axis are joined by: seconds before the first byte arrives,
    bytes a second from then on. `apart`: those between two ranks that nobody helps, where several
    wires carry what goes around by all; None: as many.
    """

    latency: float
    bandwidth: float
    apart: float | None = None

    def seconds(self, size: float) -> float:
        """The seconds in which a rank sends so many bytes."""
        return self.latency + size / self.bandwidth


LINK = Link(20e-6, 3e9)
"""Two processes of one machine by MPI, where nothing was measured: 1 MiB takes 380 us."""
