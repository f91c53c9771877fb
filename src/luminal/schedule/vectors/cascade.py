"""The choices of a cascade (`kernel/cascade_pass.py`) on vector CPUs."""

from __future__ import annotations

from luminal.algebra.frames import extent_of
from luminal.algebra.terms import axis_order
from luminal.kernel.cascade import Cascade, lane_axis
from luminal.kernel.cascade_work import CascadeTiling, is_contiguous
from luminal.kernel.cost import label
from luminal.kernel.fused import Fused
from luminal.kernel.knobs import Choices, Knobs, Value, as_knobs
from luminal.kernel.loops import estimate
from luminal.schedule.vectors.vector_target import MANY_REGISTERS, VectorTarget

FEW_LANES = 8  # so many do not fill vectors
LANE_VECTORS = 2  # vectors of lanes in a block: what is masked in whole is left out finely
STEP_BLOCK = 256  # with 32 lanes a block of x is read from the first two caches
SHORT_BLOCK = 96  # of narrow tiles, which read what they multiply more often: from the first
LONG_BLOCK = 1024  # steps of a block where lanes are few,
LONG_OF_NARROW = 128  # and of narrow tiles there
MAXIMA = 4  # folded side by side: one takes some ten cycles after the other
PARTS = 2  # vectors of steps folded side by side
TILES, SMALL_TILES = ("8x2", "6x4", "4x4", "4x2"), ("6x2", "4x2", "8x1", "2x4")
POSITION_TILES = ("4x4", "2x8", "8x2", "4x2")
SMALL_POSITION_TILES = ("2x4", "1x8", "4x2", "4x3", "3x3")
DOTS = 4  # lanes and steps of a tile of dot products: 16 accumulators
COPIED = 8  # elements copied per step of a loop over single ones

Plan = tuple[str, CascadeTiling]


def cascade_blocks(fused: Fused, cascade: Cascade, target: VectorTarget, knobs: Knobs = ()) -> Plan:
    """What vectors run along ("lanes" or "steps"), and the blocks; CompileError for a knob not
    legal here.
    """
    choices = Choices(label(fused), knobs)
    chosen = plan(fused, cascade, target, choices)
    choices.finish()
    return chosen


def cascade_space(fused: Fused, cascade: Cascade, target: VectorTarget) -> tuple[Knobs, ...]:
    """The placements worth timing, each once: () first, then those that make one choice otherwise,
    for either axis along which vectors can run.
    """
    knobs_of: dict[Plan, Knobs] = {}
    first = _offered(fused, cascade, target, ())
    for along in first["along"]:
        base = () if along == first["along"][0] else (("along", along),)
        offered = _offered(fused, cascade, target, base)
        single = [(name, value) for name, values in offered.items() for value in values[1:]]
        for change in ((), *((pair,) for pair in single if pair[0] != "along")):
            knobs = as_knobs(dict((*base, *change)))
            choices = Choices(label(fused), knobs)
            knobs_of.setdefault(plan(fused, cascade, target, choices), knobs)
    return tuple(knobs_of.values())


def _offered(
    fused: Fused, cascade: Cascade, target: VectorTarget, knobs: Knobs
) -> dict[str, tuple[Value, ...]]:
    choices = Choices(label(fused), knobs)
    plan(fused, cascade, target, choices)
    return choices.offered


# With 32 registers a tile of 16 sums hides the latency of a multiplication; with 16 it spills, and
# one of 12 sums is full speed (two multiplications a cycle, of four cycles; 8 just hide it: 1.15
# times slower on a Zen 3). The rows that a block multiplies then stay in the first-level cache only
# if blocks are short: of a row of 64 floats a tile reads one line in four, one set in four.
def plan(fused: Fused, cascade: Cascade, target: VectorTarget, choices: Choices) -> Plan:
    """The choices that are made when they are asked for."""
    lane = lane_axis(cascade)
    width = target.vector_lanes(cascade.first.args[0].dtype.size)
    positions = 1 if lane is None else estimate(extent_of((lane,)))
    along = choices.pick("along", *_directions(fused, cascade, positions))
    many = target.registers >= MANY_REGISTERS
    if along == "lanes":
        whole = LANE_VECTORS * width
        # Half a block loses less than contractions that are done again in each sweep.
        rule = (
            whole if _fits(cascade, whole, target) or not _fits(cascade, width, target) else width
        )
        block = choices.pick("lanes", rule, (2 * whole, whole, width, 3 * whole))
        block = min(block, -(-positions // width) * width)
        steps = choices.pick("steps", STEP_BLOCK if many else SHORT_BLOCK, (128, 64, 256, 512))
        first, *others = TILES if many else SMALL_TILES
        rows, vectors = choices.pick("tile", first, others).split("x")
    else:
        block = min(positions, choices.pick("lanes", FEW_LANES, (4, 32)))
        rule = LONG_BLOCK if many else LONG_OF_NARROW
        steps = choices.pick("steps", rule, (128, 512) if many else (64, 512))
        first, *others = _of_whole_rows(
            fused, cascade, width, POSITION_TILES if many else SMALL_POSITION_TILES
        )
        rows, vectors = choices.pick("tile", first, others).split("x")
    chains = MAXIMA if along == "lanes" else PARTS
    tile = int(rows), int(vectors)
    return along, CascadeTiling(
        lane,
        width,
        block,
        steps,
        *tile,
        chains,
        DOTS,
        COPIED,
        _is_kept(cascade, block, target, choices),
    )


def _of_whole_rows(fused: Fused, cascade: Cascade, width: int, tiles: tuple[str, ...]) -> list[str]:
    """The tiles, first one whose vectors are whole rows of what is multiplied, else the widest:
    prefetchers follow rows that are read to their ends.
    """
    inner = [a for store in fused.stores for a in store.axes if a not in cascade.rows][-1:]
    vectors = -(-estimate(extent_of(tuple(inner))) // width)

    def left(tile: str) -> int:
        return abs(vectors - int(tile.split("x")[1]))

    return sorted(tiles, key=left)


def _is_kept(cascade: Cascade, block: int, target: VectorTarget, choices: Choices) -> bool:
    """Is what several sweeps need kept for all steps?"""
    if cascade.sweeps == 1 or not cascade.inner:
        return False
    rule, other = ("kept", "anew") if _fits(cascade, block, target) else ("anew", "kept")
    return choices.pick("sweeps", rule, (other,)) == "kept"


def _fits(cascade: Cascade, block: int, target: VectorTarget) -> bool:
    """Does the second cache hold what several sweeps need of a block, if there are several?"""
    steps = estimate(extent_of(axis_order(cascade.steps)))
    size = block * steps * sum(r.dtype.size for r in cascade.inner)
    return cascade.sweeps == 1 or 2 * size <= target.l2_bytes


def _directions(fused: Fused, cascade: Cascade, positions: int) -> tuple[str, tuple[str, ...]]:
    """What vectors run along by rule, and the other where there is one."""
    if positions == 1:
        return "steps", ()
    (x,) = cascade.first.args
    lie = not cascade.inner and all(is_contiguous(fused, x, a) for a in cascade.steps)
    if positions <= FEW_LANES or lie:
        return "steps", ("lanes",)
    return "lanes", ("steps",)
