"""Merges: stored values of equal grid that share what they read become one kernel.

A genome may part what the rule joins, and join what it leaves apart: contractions of one grid too,
which the rule gives all registers to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from luminal.algebra.terms import At, Phase, Term
from luminal.program.kernel_graph import kernel_reads, kernels
from luminal.selection.limits import KERNEL_TERMS, REACH
from luminal.shape.expression import Symbol

Grid = frozenset[Symbol]


def merges(
    order: Sequence[Term],
    is_stored: Callable[[Term], bool],
    grids: Mapping[Term, Grid | None],
    sizes: Mapping[Term, int],
    together: Iterable[Iterable[Term]],
    most: int,
    alone: Set[Term] = frozenset(),
    wished: Iterable[tuple[Term, Term]] = (),
) -> tuple[frozenset[Term], ...]:
    """Disjoint sets of two or more stored terms. `grids`: of the kernels whose loops may be shared,
    `sizes`: terms in each kernel, `together`: stored terms that are one kernel already, `most`:
    stored terms of one kernel.

    Two groups join if their grids and phases are equal, one reads the other or both read the same
    value over the same axes, neither moves a value of the other (an At), and no path between them
    leaves their union (see `kernel_graph`). Earlier groups first. By rule those `alone` join none.
    Then come pairs that are `wished`, in their order, whatever they read, where that is legal.
    """
    # Fusion of kernels side by side: a merge saves launches and reads what both read once. Groups
    # are found by what they touch, not by comparing pairs, so a program of thousands of kernels
    # stays cheap.
    reads = kernel_reads(order, is_stored)
    graph = kernels(reads, together)
    moves = _moved(order, is_stored)
    groups: list[list[Term]] = []
    touching: dict[tuple[Grid, Phase, Term], list[int]] = {}  # groups that read or hold a value
    for term in reads:
        grid = grids.get(term)
        if grid is None or term in alone:
            continue
        near = {g for read in reads[term] for g in touching.get((grid, term.phase, read), ())}
        for place in sorted(near):
            group = groups[place]
            is_full = len(group) >= most or _is_too_long(group, term, sizes)
            if is_full or not moves[term].isdisjoint(group):
                continue
            if _has_common_reads(group, term, reads) and graph.merge((group[0], term), REACH):
                group.append(term)
                break
        else:
            place = len(groups)
            groups.append([term])
        for touched in (term, *reads[term]):
            places = touching.setdefault((grid, term.phase, touched), [])
            if place not in places[-1:]:
                places.append(place)
    home = {term: group for group in groups for term in group}
    # Wishes come last, so that they add to what the rule has found and break none of it.
    for pair in wished:
        one, other = (home.setdefault(term, [term]) for term in pair)
        union = [*one, *other]
        fits = len(union) <= most and sum(sizes[term] for term in union) <= KERNEL_TERMS
        alike = grids[pair[0]] is not None and len({(grids[t], t.phase) for t in union}) == 1
        still = all(moves[term].isdisjoint(union) for term in union)
        if one is not other and fits and alike and still and graph.merge(pair, REACH):
            home |= dict.fromkeys(union, union)
    by_group = {id(group): group for group in home.values() if len(group) > 1}
    return tuple(map(frozenset, by_group.values()))


def _is_too_long(group: Sequence[Term], term: Term, sizes: Mapping[Term, int]) -> bool:
    """Would `term` make the kernel too long? Compile time grows faster than the length."""
    return sum(sizes[other] for other in group) + sizes[term] > KERNEL_TERMS


def _moved(order: Sequence[Term], is_stored: Callable[[Term], bool]) -> dict[Term, frozenset[Term]]:
    """The stored terms that the kernel of each stored term reads through an At."""
    through_an_at: dict[Term, frozenset[Term]] = {}
    plain: dict[Term, frozenset[Term]] = {}  # what a kernel reads for the sake of a term ...
    moved: dict[Term, frozenset[Term]] = {}  # ... and what of that through an At
    nothing = frozenset[Term]()
    for term in order:
        args = dict.fromkeys(term.args)
        now, through = (nothing.union(*(sets[arg] for arg in args)) for sets in (plain, moved))
        if isinstance(term, At):
            through |= plain[term.args[0]]
        if is_stored(term):
            through_an_at[term] = through
            now, through = frozenset((term,)), nothing
        plain[term], moved[term] = now, through
    return through_an_at


# Merging saves what both read. Small operands come from a cache the second time, so only what is
# larger than the results is worth it: its bytes are what the kernels' time goes to.
def _has_common_reads(
    group: Sequence[Term], term: Term, reads: Mapping[Term, frozenset[Term]]
) -> bool:
    """Does the group hold what `term` reads, or read something large that it reads too?"""
    if not reads[term].isdisjoint(group):
        return True
    # What has more axes than the results is what their time goes to: read once for both.
    common = {read for other in group for read in reads[other]} & reads[term]
    return any(read.axes > term.axes and read.phase is Phase.RUN for read in common)
