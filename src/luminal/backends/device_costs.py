"""What work costs on devices that run texts of C: guesses from their facts, per kind of device.

Only ratios matter: between arithmetic and memory, and between both and a launch. Numbers that bits
depend on (`Shares`) are a kind's, not one chip's: programs cut sums alike on all of its chips.
"""

from __future__ import annotations

from luminal.base.costs import Costs, LongSums, Shares, Tiles, Weights
from luminal.base.records import dataclass
from luminal.schedule.groups.nests import FEW_ROWS
from luminal.schedule.vectors.vector_target import VectorTarget


@dataclass(frozen=True, slots=True)
class Speed:
    """What one unit of a kind of device does, beside the target's facts; `launch` of its driver."""

    lanes: int  # that compute at once
    hertz: float
    memory: float  # bytes a second, the device's shared out over its units
    cache: float  # bytes a second, likewise
    launch: float  # seconds from the end of a queued launch to the start of the next


GPU = Speed(lanes=128, hertz=1.5e9, memory=25e9, cache=75e9, launch=5e-6)
"""An H100's memory has 3.35 TB/s for 132 units, an MI300X's 5.3 for 304. The launch is what is
usual of such drivers, not measured here.
"""
DECODED_ROWS = 256
"""Each block of rows decodes a packed weight anew. By the model of an H100, 4096 x 4096 of Q4_0
takes 63 us so at 256 rows, and 75 with a decoded copy; at 2048 rows 418 and 202.
"""
CORES = Speed(lanes=8, hertz=2e9, memory=10e9, cache=40e9, launch=10e-6)
"""CPUs through OpenCL. A core of a Zen 4 on Intel's runtime: products 35e9 flops, chains 38e9,
4.6e9 bytes of memory, 29e9 of cache, launches in 11 us, of which 2.5 are the queue's and the rest
arguments set through Python.
"""


# A GPU rather computes a value again than reads it: arithmetic is nearly free there beside memory.
# A CPU's costs would store what is computed twice.
def gpu(target: VectorTarget, speed: Speed = GPU) -> Costs:
    """The costs of a GPU: arithmetic is nearly free beside memory, and there are many units to be
    fed.
    """
    special = dict.fromkeys(("Log", "Exp2", "Log2", "Sqrt", "Recip"), 4)  # own pipes, slower
    special["Exp"] = 5  # a power of 2
    long = dict.fromkeys(("Div", "Sin", "Cos"), 8) | dict.fromkeys(("FloorDiv", "Mod"), 16)
    return _costs(
        target,
        speed,
        Weights(load=16, dear=special | long),
        Shares(
            points=128,  # groups: some for every unit
            columns=1,
            blocks=8,
            passes=128,  # as points
            rows=FEW_ROWS,
            lanes=32,
            scattered=1 << 12,  # each lane adds on its own
            work=1 << 16,
            chunks=512,
            chunk=1 << 12,  # some steps of a group's lanes
            part=4,
            tried=(64, 512),
            beside=8,  # a sector of memory
            owners=64,  # a power of 2: with the columns beside them as many groups as units
            sorted=8 << 10,  # twice that is near to a group on all of them
        ),
        # A cache of the whole device holds more tiles: `colliding` is no number of tiles at all.
        Tiles(channels=32, fewest=16, most=1 << 14, colliding=1 << 30, columns=128),
    )


def cores(target: VectorTarget, speed: Speed = CORES) -> Costs:
    """The costs of a CPU whose compiler makes vectors of a group's lanes."""
    special = dict.fromkeys(("Exp", "Log", "Exp2", "Log2", "Sin", "Cos"), 10)
    long = dict.fromkeys(("Div", "Sqrt", "Recip"), 4) | dict.fromkeys(("FloorDiv", "Mod"), 8)
    return _costs(
        target,
        speed,
        Weights(load=4, dear=special | long),
        Shares(
            points=16,
            columns=1,
            blocks=2,
            passes=0,
            rows=0,
            lanes=32,
            scattered=64,
            work=1 << 16,
            chunks=64,
            chunk=1 << 14,  # a launch costs as much as reading so many
            part=4,
            tried=(8, 64),
        ),
        Tiles(channels=32, fewest=16, most=1024, colliding=256, columns=128),
    )


def _costs(
    target: VectorTarget, speed: Speed, weights: Weights, shares: Shares, tiles: Tiles
) -> Costs:
    flops = speed.lanes * speed.hertz
    return Costs(
        units=target.cores,
        contraction_flops=2 * flops,
        pointwise_flops=flops,
        memory=speed.memory,
        cache=speed.cache,
        cache_bytes=target.l3_bytes // 2,
        launch=speed.launch,
        row_bytes=target.l1_bytes // 2,
        streams=8,  # as many addresses stay in registers
        products=8,
        decoded_rows=DECODED_ROWS if any(dot.is_matrix for dot in target.dots) else 0,
        scaled=tuple(dot for dot in target.dots if dot.scale is not None),
        expansion=8,
        weights=weights,
        shares=shares,
        long_sums=LongSums(length=1 << 14, chunk=1 << 10, points=1 << 16),
        tiles=tiles,
        windows=None,
    )
