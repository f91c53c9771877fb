"""What work costs on vector CPUs: guesses from their facts, measured on a few of them."""

from __future__ import annotations

from luminal.base.costs import Costs, LongSums, Shares, Tiles, Weights, Windows
from luminal.schedule.vectors.vector_target import IDLE, MANY_REGISTERS, VectorTarget

LAUNCH_WORK = 1 << 14  # operations of one core in the time of a barrier: about a microsecond
ROW_BYTES = 1 << 18  # stays in the second-level cache
STREAMS = 16
WEIGHTS = Weights(
    load=4,
    dear={"Div": 4, "Sqrt": 4, "Recip": 4, "FloorDiv": 8, "Mod": 8}
    | dict.fromkeys(("Exp", "Log", "Exp2", "Log2", "Sin", "Cos"), 10),
)
SHARES = Shares(
    points=16,  # teams up to so many threads
    columns=256,  # as many as there are registers for
    blocks=2,
    rows=0,
    passes=0,
    lanes=32,
    scattered=64,  # a vector takes 16 of them
    work=1 << 16,
    chunks=64,
    chunk=1 << 12,
    part=4,
    tried=(8, 64),  # a small team's, and even shares
)
LONG_SUMS = LongSums(length=1 << 14, chunk=1 << 10, points=1 << 16)
TILES = Tiles(channels=32, fewest=16, most=1024, colliding=256, columns=128)


# Guesses from facts, not measurements: a program must not depend on what else ran while something
# was measured, and no compile waits for a measurement. Measured peaks serve reports only.
def of(target: VectorTarget) -> Costs:
    """The costs of a machine."""
    lanes = target.vector_lanes(4)
    pointwise = 1e9 * lanes
    return Costs(
        units=target.cores,
        contraction_flops=4e9 * lanes,
        pointwise_flops=pointwise,
        memory=10e9,
        cache=40e9,
        cache_bytes=target.l3_bytes // 2,
        launch=LAUNCH_WORK / pointwise,
        row_bytes=ROW_BYTES,
        streams=STREAMS,
        products=STREAMS if target.registers >= MANY_REGISTERS else 1,
        decoded_rows=0,
        scaled=(),
        expansion=8,
        weights=WEIGHTS,
        shares=SHARES,
        long_sums=LONG_SUMS,
        tiles=TILES,
        windows=_windows(lanes, target.registers),
    )


def _windows(lanes: int, registers: int) -> Windows:
    return Windows(
        lanes=lanes,
        full=IDLE,
        rows=8 if registers >= MANY_REGISTERS else 4,  # sums of these stay in registers
        load=0.5,
        mask=0.3,
        edge=0.09,
        parts=5.0,
        apart=1.2,
        across=0.25,
        spread=0.3,
        copied=0.3,
        turned=1.0,
        launch=3000,
    )
