"""Sorts of long rows in blocks, which groups sort in memory of their own, and merges of these.

`Sort(x) -> Merge(... Merge(Sort(x) in blocks) ...)` takes log2(length / block) merges, which all
units share whatever the number of rows (`kernel/group_merge.py`).
"""

from __future__ import annotations

from luminal.algebra.frames import extent_of, most
from luminal.algebra.sorts import MergedRuns, SortedBlocks
from luminal.algebra.terms import Frame, OpaqueAttrs, Term, Terms
from luminal.base.costs import Shares
from luminal.base.dtypes import int64
from luminal.kernel.sort_memory import order_dtype
from luminal.selection.rewrite import Respelled
from luminal.shape.expression import Expression

FEW = 4  # blocks of a row that a group sorts and merges alone about as soon
MOST_MERGES = 16  # a dim without a bound would have twice as many, of which a run needs few


def sorts_in_blocks(program: Respelled, shares: Shares) -> Respelled:
    """The program with Sorts of long rows as Sorts of blocks and merges, where groups sort."""
    order = program.order()
    sorts = [term for term in order if term.op == "Sort"]
    if not sorts or not shares.sorted:
        return program
    site = 1 + max(term.attrs.site for term in order if term.is_opaque)
    # Its two results are the ends of the same merges, whose own lie along the first one's axes.
    firsts: dict[int, Term] = {}
    for sort in sorts:
        firsts.setdefault(sort.attrs.site, sort)
    blocked: dict[int, _SortInBlocks] = {}
    for number, sort in firsts.items():
        size = block_size(sort, shares.sorted)
        if size is not None:
            blocked[number] = _SortInBlocks(program.lowered.terms, sort, size, site)
            site += MOST_MERGES + 1
    return program.rewrite(
        lambda old, same: (
            blocked[old.attrs.site].result(same)
            if old.op == "Sort" and old.attrs.site in blocked
            else same
        )
    )


def block_size(sort: Term, bytes_: int) -> int | None:
    """The keys of a block, a power of two, which take so many bytes with their places; None where
    rows are short, or of any length.
    """
    extent = _extent(sort)
    pair = sort.args[0].dtype.size + order_dtype(extent).size
    size = 1 << ((bytes_ // pair).bit_length() - 1)
    return size if FEW * size < most(extent) <= size << MOST_MERGES else None


class _SortInBlocks:
    """The terms of one Sort in blocks of a `size`; `site` and those after it number operations."""

    def __init__(self, terms: Terms, sort: Term, size: int, site: int) -> None:
        self.terms, self.size, self.site = terms, size, site
        self.along: int = sort.attrs.hlir.axis
        self.frame = self.moved(sort.attrs.result)
        self.length, self.order = most(_extent(sort)), order_dtype(_extent(sort))

    def result(self, sort: Term) -> Term:
        """The result that the Sort is, of the merges."""
        last = len(self.frame) - 1
        first = SortedBlocks(last, self.size, self.order)
        frames: tuple[Frame, ...] = (self.moved(sort.attrs.frames[0]),)
        args, size, site = sort.args, self.size, self.site
        hlir: SortedBlocks | MergedRuns = first
        while size < self.length:
            args = tuple(
                self.opaque(sort, hlir, args, frames, index, self.frame, site) for index in (0, 1)
            )
            frames = (self.frame, self.frame)
            hlir = MergedRuns(last, size, self.order if 2 * size < self.length else int64)
            size, site = 2 * size, site + 1
        index, result = sort.attrs.index, self.moved(sort.attrs.result)
        return self.opaque(sort, hlir, args, frames, index, result, site)

    def opaque(
        self, sort: Term, hlir: SortedBlocks | MergedRuns, args: tuple[Term, ...],
        frames: tuple[Frame, ...], index: int, result: Frame, site: int,
    ) -> Term:  # fmt: skip
        attrs = OpaqueAttrs(hlir, frames, result, index, site)
        dtype = hlir.order if index else sort.args[0].dtype
        return self.terms.opaque("Sort", args, attrs, dtype)

    def moved(self, frame: Frame) -> Frame:
        """The frame with the dimension of the rows behind all others."""
        return (*frame[: self.along], *frame[self.along + 1 :], frame[self.along])


def _extent(sort: Term) -> Expression:
    attrs: OpaqueAttrs = sort.attrs
    return extent_of(attrs.result[attrs.hlir.axis])
