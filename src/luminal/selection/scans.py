"""Scans of few rows in two passes: totals of blocks, then all blocks side by side.

`Scan(x) -> Scan(x, before)` with `before[b]` the total of all blocks before b: the scan of their
totals, moved by one block (`algebra/scans.py` has the law). The totals are a reduction, which reads
x once more and stores next to nothing. Blocks follow from the extents alone: the bits do not depend
on how many units work.
"""

from __future__ import annotations

from dataclasses import replace

from luminal.algebra.frames import extent_of, most, spread, upper
from luminal.algebra.scans import BlockedScan
from luminal.algebra.terms import Frame, OpaqueAttrs, Term, Terms
from luminal.base.costs import Shares
from luminal.base.numerics import ROUNDING, Numerics
from luminal.hlir.monoid import SCANS, Monoid
from luminal.selection.rewrite import Respelled
from luminal.selection.split import chunk_size
from luminal.shape.expression import Expression, Symbol, axis, ceil_div, const, maximum


def scans_in_blocks(program: Respelled, shares: Shares, numerics: Numerics) -> Respelled:
    """The program with Scans that may be regrouped in blocks, where rows are few."""
    order = program.order()
    scans = [term for term in order if term.op == "Scan"]
    scans = [t for t in scans if numerics.allows(ROUNDING) or _monoid(t).is_exact(t.dtype)]
    if not scans:
        return program
    sites = max(term.attrs.site for term in order if term.is_opaque)
    # Each makes up to one more operation.
    wanted = {term: sites + 2 * k + 1 for k, term in enumerate(scans)}
    terms = program.lowered.terms
    return program.rewrite(
        lambda old, same: (
            _ScanInBlocks(terms, same, wanted[old]).scan(shares) if old in wanted else same
        )
    )


def _monoid(scan: Term) -> Monoid:
    return SCANS[scan.attrs.hlir.kind]


# Totals of blocks (which reads x once more), their scan, and a scan in each block that begins with
# what stands before it: two passes that all threads share, for one chain that one thread walks
# (Blelloch, Prefix sums and their applications, 1990).
class _ScanInBlocks:
    """The terms of one Scan in blocks; `site` and the one after it number new operations."""

    def __init__(self, terms: Terms, scan: Term, site: int) -> None:
        self.terms, self.term, self.site = terms, scan, site
        self.attrs: OpaqueAttrs = scan.attrs
        self.kind, self.axis = self.attrs.hlir
        self.monoid = _monoid(scan)
        self.x = scan.args[0]
        self.extent = extent_of(self.attrs.result[self.axis])

    def scan(self, shares: Shares) -> Term:
        """The Scan, in blocks where that pays."""
        length = most(self.extent)
        points = upper(a for d in self.attrs.result for a in d) // length
        beside = upper(a for d in self.attrs.result[self.axis + 1 :] for a in d)
        size = None
        if shares.leave_idle(points // max(1, min(beside, shares.beside)), points * length):
            size = chunk_size(length, points, shares)
        if size is None:
            return self.opaque(BlockedScan(self.kind, self.axis), (self.x,), self.attrs)
        before = self.before(size)
        frames = (self.attrs.frames[0], before.attrs.result)
        attrs = replace(self.attrs, frames=frames)
        return self.opaque(BlockedScan(self.kind, self.axis, size), (self.x, before), attrs)

    def opaque(self, hlir: BlockedScan, args: tuple[Term, ...], attrs: OpaqueAttrs) -> Term:
        attrs = replace(attrs, hlir=hlir, site=self.site)
        self.site += 1
        return self.terms.opaque("Scan", args, attrs, self.term.dtype)

    def new_axis(self, role: str, extent: Expression) -> Symbol:
        return axis(f"{role}.scan{self.attrs.site}", extent)

    def before(self, size: int) -> Term:
        """The total of all that stands before a block, by block."""
        blocks = ceil_div(self.extent, size)
        block = self.new_axis("block", blocks)
        last = self.new_axis("full", maximum(blocks - 1, const(0)))  # a dim may be 0
        totals = self.totals(last, self.new_axis("in", const(size)))
        nothing = self.terms.literal(self.monoid.identity_bytes(totals.dtype), totals.dtype)
        arms = (
            self.terms.boolean(block >= 1),
            self.terms.at(totals, {last: block - 1}),
            nothing,
        )
        moved = self.terms.pointwise("Select", arms, totals.dtype)
        frame = self.framed(self.attrs.frames[0], block)
        result = self.framed(self.attrs.result, self.new_axis("before", blocks))
        return self.opaque(
            BlockedScan(self.kind, self.axis),
            (moved,),
            OpaqueAttrs(None, (frame,), result, 0, 0),
        )

    def totals(self, block: Symbol, within: Symbol) -> Term:
        """The total of each block's values, by block, for all but the last, which alone may be
        short.
        """
        assert within.extent is not None
        position = block * within.extent + within
        x = self.terms.at(self.x, spread(position, self.attrs.frames[0][self.axis]))
        return self.terms.reduce(self.monoid.reduction, (within,), x, merge=False)

    def framed(self, frame: Frame, *axes: Symbol) -> Frame:
        """The frame with these axes in place of the row's dimension, each a dimension."""
        return (*frame[: self.axis], *((a,) for a in axes), *frame[self.axis + 1 :])
