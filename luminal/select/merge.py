"""Merges: stored values of equal grid that share what they read become one kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from luminal.algebra.terms import Phase, Term, below
from luminal.select.weights import KERNEL_TERMS, MERGED
from luminal.shape.expression import Symbol

Grid = frozenset[Symbol]


def merges(
    order: Sequence[Term],
    is_stored: Callable[[Term], bool],
    grids: Mapping[Term, Grid | None],
    sizes: Mapping[Term, int],
) -> tuple[frozenset[Term], ...]:
    """Disjoint sets of two or more stored terms. `grids`: of the kernels whose loops may be shared,
    `sizes`: terms in each kernel.

    Two groups join if their grids are equal, one reads the other or both read the same value over
    the same axes, and no path between them leaves their union or moves a value (an At). Earlier
    groups first.
    """
    reads = {term: _reads(term, is_stored) for term in order if is_stored(term)}
    number = {term: k for k, term in enumerate(order)}
    groups: list[list[Term]] = []
    home: dict[Term, list[Term]] = {}
    touching: dict[tuple[Grid, Phase, Term], list[int]] = {}  # groups that read or hold a value
    for term in reads:
        home[term] = [term]
        grid = grids.get(term)
        if grid is None:
            continue
        moved = _moved(term, is_stored)
        near = {g for read in reads[term] for g in touching.get((grid, term.phase, read), ())}
        for place in sorted(near):
            group = groups[place]
            if _large(group, term, sizes) or not moved.isdisjoint(group):
                continue
            if _share(group, term, reads) and not _detour(group, term, reads, home, number):
                group.append(term)
                home[term] = group
                break
        else:
            place = len(groups)
            groups.append(home[term])
        for touched in (term, *reads[term]):
            places = touching.setdefault((grid, term.phase, touched), [])
            if place not in places[-1:]:
                places.append(place)
    return tuple(frozenset(group) for group in groups if len(group) > 1)


def _large(group: Sequence[Term], term: Term, sizes: Mapping[Term, int]) -> bool:
    """Would `term` make the kernel too long? LLVM's time grows faster than the length."""
    terms = sum(sizes[other] for other in group) + sizes[term]
    return len(group) >= MERGED or terms > KERNEL_TERMS


def _reads(term: Term, is_stored: Callable[[Term], bool]) -> frozenset[Term]:
    """The leaves and stored terms that the kernel of a stored term reads."""

    def is_end(read: Term) -> bool:
        return read.is_leaf or is_stored(read)

    return frozenset(filter(is_end, below(term.args, is_end)))


def _moved(term: Term, is_stored: Callable[[Term], bool]) -> frozenset[Term]:
    """The stored terms that the kernel of a stored term reads through an At."""
    found: set[Term] = set()
    seen: set[tuple[Term, bool]] = set()
    stack = [(arg, False) for arg in term.args]
    while stack:
        below, through = stack.pop()
        if (below, through) in seen:
            continue
        seen.add((below, through))
        if is_stored(below):
            found.update((below,) if through else ())
        elif below.op == "At":
            stack += [(below.args[0], True), *((arg, through) for arg in below.args[1:])]
        else:
            stack.extend((arg, through) for arg in below.args)
    return frozenset(found)


def _share(group: Sequence[Term], term: Term, reads: Mapping[Term, frozenset[Term]]) -> bool:
    """Does the group hold what `term` reads, or read something large that it reads too?"""
    if not reads[term].isdisjoint(group):
        return True
    common = {read for other in group for read in reads[other]} & reads[term]
    return any(read.axes > term.axes and read.phase is Phase.RUN for read in common)


def _detour(
    group: Sequence[Term],
    term: Term,
    reads: Mapping[Term, frozenset[Term]],
    home: Mapping[Term, list[Term]],
    number: Mapping[Term, int],
) -> bool:
    """Is there a path from the group to `term` through another kernel? `number`: the order."""
    wanted = set(group)
    first = number[group[0]]
    seen: set[Term] = set()
    stack = [read for read in reads[term] if read not in wanted]
    while stack:
        below = stack.pop()
        if below in seen:
            continue
        seen.add(below)
        if below in wanted:
            return True
        kernel = home.get(below, [below])
        if number[kernel[-1]] > first:  # else all of it comes before the group
            for member in kernel:
                stack.extend(reads.get(member, ()))
    return False
