"""How many rows by how many vectors a contraction accumulates in registers at once.

A step of the reduced axis takes about as many cycles as its multiplications (64 bytes a cycle, so
two of short vectors), unless loads take longer (two broadcasts a cycle, 64 bytes from the
second-level cache in two) or the accumulators are fewer than a multiplication takes cycles; and
some for the loop itself. Of tiles
that come out equal wide ones read the rows less often. But columns in a packed strip are read again
for every tile of rows: there a strip that stays in the first-level cache is a little faster, and so
are tall tiles (6 x 2 vectors beside 4 x 3 on a Zen 3: 1.1 to 1.25 times, 256 to 1024 long).
"""

from __future__ import annotations

from luminal.schedule.vectors.vector_target import VectorTarget

CYCLE_BITS = 512  # multiplied and added in a cycle
LATENCY = 4  # cycles of a multiplication with addition
OVERHEAD = 2  # cycles of a loop's step
MOST_ROWS = 8  # of memory at once: rows a power of two long meet in the ways of one set of the
# first-level cache, and prefetchers follow some ten
WIDE = 0.01  # slower for each vector that a tile reads of a strip
FAR = 0.04  # slower are steps whose strip is in the second-level cache,
ROOM = 1.25  # being as large as this times the first-level cache
TALL_ROWS = 14  # what a search may try all the same
WIDTHS = (1, 2, 3, 4, 6, 8)


def register_tiles(
    rows: int,
    columns: int,
    lanes: int,
    sums: int,
    loads: int,
    target: VectorTarget,
    strip: int = 0,
    kept: int = 0,
    step: int = 1,
    together: int = 1,
) -> list[tuple[int, int]]:
    """Tiles for an extent of `rows` by `columns`, with so many sums at once: the best first.

    `loads`: factors that are read anew for each column only, a register for each of its vectors.
    `strip`: bytes of each column of a packed strip; 0 where columns are read in place. `kept`:
    registers that hold the same all over the extent. `step`: rows of memory from one row of a tile
    to the next, where it reads all those between; 0 where rows are elements of the same lines.
    `together`: rows that an instruction multiplies.
    """
    vectors = -(-columns // lanes)
    rate = max(1, CYCLE_BITS // target.vector_bits)
    usual: list[tuple[float, int, int]] = []
    tall: list[tuple[int, int]] = []
    for width in (w for w in WIDTHS if w <= vectors):
        free = target.registers - kept - width * loads
        if target.multiplies_memory:
            most = (free - 1) // (width * sums)
        else:
            most = free // (width * sums + 1)
        if most < 1 and width > 1:
            continue  # not even a row's sums fit
        most = max(1, most)
        highest = min(most, rows, _most_rows(step, rate))
        heights = (
            range(1, highest + 1) if highest < together else range(together, highest + 1, together)
        )
        far = strip * width * lanes > target.l1_bytes * ROOM
        slow = 1 + FAR * far + (WIDE * width if strip else 0)
        # Shares are so many strips: who has none of the ragged one is waited for.
        whole = -(-columns // (width * lanes)) * width * lanes if strip else columns
        costs = sorted(
            (slow * _cost(rows, whole, lanes, h, width, sums, rate), -h) for h in heights
        )
        usual += [(cost, -width, -height) for cost, height in costs[:2]]
        if min(most, rows, TALL_ROWS) > max(highest, MOST_ROWS):
            tall.append((min(most, rows, TALL_ROWS), width))
    return [*((height, -width) for _, width, height in sorted(usual)), *tall]


def _most_rows(step: int, rate: int) -> int:
    if step:
        return max(1, MOST_ROWS // step)
    return TALL_ROWS if rate > 1 else MOST_ROWS  # long vectors have rows enough in 8


def _cost(
    rows: int, columns: int, lanes: int, height: int, width: int, sums: int, rate: int
) -> float:
    """Cycles for the whole extent and one step. Rows and columns that no tile covers are a smaller
    one (`expand/loops.py`).
    """
    whole, rest = divmod(columns, width * lanes)
    strips = ((width, whole), (-(-rest // lanes), 1)) if rest else ((width, whole),)
    lines = ((height, rows // height), (rows % height, min(1, rows % height)))
    return sum(m * n * _cycles(h, w, sums, rate) for h, m in lines for w, n in strips)


def _cycles(height: int, width: int, sums: int, rate: int) -> float:
    loads = height / 2 + 2 * width / rate
    return max(height * width * sums / rate, loads, LATENCY) + OVERHEAD
