"""How products are tiled: the blocks that a group computes, and what it keeps in shared memory."""

from __future__ import annotations

from math import prod

from luminal.algebra.terms import Term
from luminal.base.dots import Dot
from luminal.base.records import dataclass
from luminal.base.swizzles import SWIZZLES, swizzle_of
from luminal.kernel.boxes import SCALES_OF_COLUMN, SQUARE
from luminal.kernel.lanes import ONE_LANE, Lanes
from luminal.kernel.layout import ROW_MAJOR
from luminal.kernel.neighbours import below_cast, in_blocks, multiplied
from luminal.kernel.product_sides import Sides
from luminal.kernel.schedule import Stage, TileChoice
from luminal.kernel.tile_ir import Space
from luminal.memory.alignment import ACCESS
from luminal.shape.expression import Expression, const, opaque

DEPTH, PLACE = opaque("depth"), opaque("place")
"""The position along the sum in a block of it, and along the rows, or the columns, of a block."""
ALIGNMENT = max(swizzle.alignment for swizzle in SWIZZLES.values())
STREAMS = 4  # elements that a lane copies at once: loads under way while others are waited for


@dataclass(frozen=True, slots=True)
class ProductTiling:
    """`rows` x `columns` results a group, `tile` of them (rows, columns) a lane, `deep` steps of
    the sum at a time, in one of `buffers` blocks of shared memory: powers of two. `deep_first`: of
    the blocks of rows and of columns, are neighbours along the sum copied by neighbouring lanes?
    `short`: are 16-bit floats widened only where they are multiplied? By a `dot` a tile is that of
    all lanes that multiply together. `ring`: do lanes copy without registers what lies as it is
    multiplied? `boxes`: does the device bring what of that it can be told of?
    A lane copies `word` bytes at once; lanes that step together copy so many bytes `beside` each
    other, 0 where each copies wherever it likes.
    Groups walk the blocks in bands of `band` rows of them, column by column. So many groups are a
    `cluster`, which is a part of a band: blocks of the same columns, which they bring together.
    """

    rows: int
    columns: int
    deep: int
    tile: tuple[int, int]
    buffers: int
    deep_first: tuple[bool, bool]
    short: bool = False
    dot: Dot | None = None
    ring: bool = False
    boxes: bool = False
    word: int = ACCESS
    beside: int = 0
    band: int = 1
    cluster: int = 1

    @property
    def tiles(self) -> tuple[int, int]:
        """How many tiles there are along the rows and the columns."""
        return self.rows // self.tile[0], self.columns // self.tile[1]

    @property
    def lanes(self) -> int:
        """How many lanes a group has."""
        down, across = self.tiles
        return down * across * (1 if self.dot is None else self.dot.together)

    def kept(self, sides: Sides, factor: Term) -> Term:
        """What of a factor lies in shared memory: by a dot what that multiplies of it."""
        if self.dot is not None:
            return factor
        return sides.short(factor) if self.short else factor

    def across(self, side: int) -> int:
        """The rows, or the columns."""
        return (self.rows, self.columns)[side]

    @property
    def running(self) -> int:
        """Batches of products that run on while the next one is asked for: what they read is not
        copied over yet, so a block of a ring more is taken by each.
        """
        return int(self.dot is not None and self.dot.is_from_memory and self.buffers > 2)

    def tensor_columns(self, sums: int) -> int:
        """The columns of tensor memory that hold so many sums of each result; 0 if lanes do."""
        dot = self.dot
        if dot is None or not dot.in_tensor:
            return 0
        return self.rows // dot.m * self.columns * sums

    def scale_columns(self, sides: Sides) -> int:
        """The columns of tensor memory that hold scales: each of the rooms that they have in shared
        memory stands there as well.
        """
        if self.dot is None or not self.dot.in_tensor:
            return 0
        return self.scale_bytes(sides) // SCALES_OF_COLUMN

    def scale_bytes(self, sides: Sides) -> int:
        """Shared memory that scales take."""
        if self.dot is None or self.dot.scale is None:
            return 0
        return sum(prod(self.scale_words(side)) * self.buffers for side, _ in sides.kept)

    def scale_words(self, side: int) -> tuple[int, int]:
        """How many scales of a side a block of the sum has by rows, or columns, and by steps; by a
        dot with sums in tensor memory as whole squares of 128 by 4.
        """
        dot = self.dot
        assert dot is not None
        across, deep = self.across(side), -(-self.deep // dot.block)
        if dot.in_tensor:
            rows, columns = SQUARE
            across, deep = -(-across // rows) * rows, -(-deep // columns) * columns
        return across, deep

    def is_along_sum(self, side: int) -> bool:
        """Do neighbours along the sum lie side by side in shared memory, by a dot? Elements of 16
        bits are turned on their way from there.
        """
        dot = self.dot
        assert dot is not None
        return self.deep_first[side] or (dot.a.size != 2 if dot.is_from_memory else dot.a.size == 1)

    def swizzle(self, side: int) -> int:
        """The width of the lines in which a dot reads a factor in shared memory: the greatest, and
        none greater than a block of the dot; 0 if it reads registers.
        """
        dot = self.dot
        if dot is None or not dot.is_from_memory:
            return 0
        of_block = dot.n if side else dot.m
        return swizzle_of((self.deep if self.is_along_sum(side) else of_block) * dot.a.size)

    def stage(self, sides: Sides, side: int, factor: Term, count: int = 0) -> Stage:
        """How a factor is copied into shared memory for each block of the sum, so many elements at
        once without registers, or by them.
        """
        term = self.kept(sides, factor)
        size = multiplied(term, self.dot).size
        lengths = {DEPTH: self.deep, PLACE: self.across(side)}
        row = lengths[DEPTH if self.deep_first[side] else PLACE] * size
        lengths[DEPTH if self.deep_first[side] else PLACE] //= count or 1
        outer, inner = (PLACE, DEPTH) if self.deep_first[side] else (DEPTH, PLACE)
        # What is computed on its way is read 16 bytes at a time, where it lies so; but runs of what
        # is turned on its way would be stored in one bank.
        along_sum = self.dot is not None and self.is_along_sum(side)
        is_turned = along_sum and not self.deep_first[side]
        has_runs = self.dot is not None and count == 0 and not is_turned
        run = min(ACCESS // size, lengths[inner]) if has_runs else 1
        near = min(lengths[inner] // run, self.lanes)
        far = min(lengths[outer], self.lanes // near)
        # What is held while another block is multiplied is held whole. Codes that are decoded on
        # their way into a ring are stored at once.
        is_decoded = self.ring and self.dot is not None and self.dot.scale is not None
        unroll = STREAMS if self.buffers == 1 or is_decoded else 0
        fill = (
            (outer, dealt(lengths[outer], far, near, unroll)),
            (inner, dealt(lengths[inner], near, 1, unroll and 1, run)),
        )
        # Lanes that copy along the sum would meet in one bank if rows were a power of two long.
        pad = self.deep_first[side] * size
        order = DEPTH, PLACE
        if self.dot is not None:
            # Words along the sum are loaded whole; those of 16 bits are turned on their way. Eight
            # rows of 16 bytes, loaded together, lie in banks of their own.
            order = (PLACE, DEPTH) if along_sum else order
            pad = ACCESS if along_sum or size == 2 else 2 * ACCESS
        swizzle, piece = self.swizzle(side), 0
        if count and self.beside and row % self.beside:
            # Lines that lanes copy together leave no room for padding: pieces of 16 bytes move
            # along instead. What is turned on its way is read by elements, and lies as it is.
            pad, piece = 0, ACCESS // size if along_sum and row > ACCESS else 0
        return Stage(
            term, DEPTH, order, fill, 0 if swizzle else pad, self.dot, Space.SHARED, self.buffers,
            swizzle, piece,
        )  # fmt: skip

    def source(self, sides: Sides, factor: Term) -> Term | None:
        """What in memory lanes may copy without registers: a factor that lies there as it is kept,
        at its own positions.
        """
        if not self.ring or self.dot is None:
            return None
        if self.dot.scale is not None:
            blocks = in_blocks(factor, self.dot)
            assert blocks is not None
            codes, _ = blocks
            is_kept = codes.dtype is self.dot.a and codes in sides.fused.reads
            return codes if is_kept else None
        term = below_cast(factor, self.dot.a, sides.fused.reads)
        is_own = term is factor or (factor.op == "Cast" and term is factor.args[0])
        return term if is_own and term in sides.fused.reads else None

    def copied(self, sides: Sides, side: int, factor: Term) -> int:
        """How many elements of a factor lanes copy at once without registers; 0 if they cannot."""
        term = self.source(sides, factor)
        if term is None or not self.copies_whole(sides, side, factor):
            return 0
        return self.word // term.dtype.size

    def copies_whole(self, sides: Sides, side: int, factor: Term) -> bool:
        """Can lanes copy a factor without registers? It must lie along what is kept side by side,
        in whole words.
        """
        term = self.source(sides, factor)
        if term is None:
            return False
        place, count = sides.fused.reads[term], self.word // term.dtype.size
        if place.layout != ROW_MAJOR or not place.frame or not count:
            return False
        # Where lanes copy beside each other, all do.
        if self.beside and self.deep * self.across(side) < count * self.lanes:
            return False
        mine = sides.columns if side else sides.rows
        along = (sides.summed if self.deep_first[side] else mine)[-1].members[-1]
        extent, length = along.extent, self.deep if self.deep_first[side] else self.across(side)
        is_whole = extent is not None and extent.is_const and extent.value % count == 0
        kept_so = self.deep_first[side] or not self.is_along_sum(side)
        return is_whole and kept_so and length % count == 0 and place.frame[-1][-1:] == (along,)

    def bytes_of(self, stage: Stage, side: int) -> int:
        """Shared memory that a stage takes."""
        lengths = {DEPTH: self.deep, PLACE: self.across(side)}
        outer, inner = (lengths[symbol] for symbol in stage.order)
        size = multiplied(stage.term, stage.dot).size
        taken = outer * (inner * size + stage.pad) * stage.buffers
        return -(-taken // ALIGNMENT) * ALIGNMENT if stage.swizzle else taken


def scale_digits(tiling: ProductTiling, side: int) -> list[tuple[Expression, Expression]]:
    """Where the scales of a side lie in shared memory, outermost digits first, each with its
    extent: by rows, or columns; for tensor memory in squares, of which rows that are 32 apart lie
    side by side.
    """
    dot = tiling.dot
    assert dot is not None
    across, deep = tiling.scale_words(side)
    number = DEPTH // dot.block
    if not dot.in_tensor:
        return [(PLACE, const(across)), (number, const(deep))]
    rows, columns = SQUARE
    return [
        (number // columns, const(deep // columns)), (PLACE // rows, const(across // rows)),
        (PLACE % 32, const(32)), (PLACE % rows // 32, const(rows // 32)),
        (number % columns, const(columns)),
    ]  # fmt: skip


def shared_bytes(sides: Sides, tiling: ProductTiling) -> int:
    """Shared memory that a tiling takes, with that of what tells the end of products."""
    staged = sum(
        tiling.bytes_of(tiling.stage(sides, side, factor, tiling.copied(sides, side, factor)), side)
        for side, factor in sides.kept
    )
    staged += tiling.scale_bytes(sides)
    return staged + ALIGNMENT * (tiling.dot is not None and tiling.dot.in_tensor)


def dealt(size: int, lanes: int, stride: int = 1, unroll: int = 0, run: int = 1) -> TileChoice:
    """A tile by so many lanes: of all positions, or of `unroll` positions of each lane, or runs."""
    if lanes == 1:
        return TileChoice(min(unroll or size, size), 1, ONE_LANE)
    return TileChoice(min(unroll or size, size // (lanes * run)), 1, Lanes(lanes, stride, run))
