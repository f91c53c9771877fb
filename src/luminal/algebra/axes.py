"""Atomic axes: which dimensions of which values are the same axis.

A dimension is a list of atoms in mixed radix, outermost first. `unify` makes two dimensions the
same list, splitting atoms on demand: merged and split heads, grouped heads and non-overlapping
windows then leave no operation behind. A union that would give one value the same axis twice is
refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from luminal.shape.expression import Expression, const


class Atom:
    """One axis until it is united with another (`parent`) or split into two (`parts`)."""

    __slots__ = ("extent", "members", "parent", "parts")

    def __init__(self, extent: Expression, members: set[int]) -> None:
        self.extent = extent
        self.members = members  # numbers of the values that have this axis
        self.parent: Atom | None = None
        self.parts: tuple[Atom, Atom] | None = None


Dimension = list[Atom]

_ONE = const(1)


def find(atom: Atom) -> Atom:
    """The atom that stands for `atom` now."""
    root = atom
    while root.parent is not None:
        root = root.parent
    while atom.parent is not None:
        atom.parent, atom = root, atom.parent
    return root


def resolve(dimension: Iterable[Atom]) -> list[Atom]:
    """The unsplit atoms a dimension consists of now, outermost first."""
    out: list[Atom] = []
    stack = list(dimension)[::-1]
    while stack:
        atom = find(stack.pop())
        if atom.parts is None:
            out.append(atom)
        else:
            stack.extend(reversed(atom.parts))
    return out


def fresh(extent: Expression, member: int) -> Dimension:
    """A dimension of its own; an extent of literal 1 has no axis."""
    return [] if extent == _ONE else [Atom(extent, {member})]


def join(dimension: Sequence[Atom], member: int) -> Dimension:
    """The dimension's atoms, of which `member` is now a value too."""
    atoms = resolve(dimension)
    for atom in atoms:
        atom.members.add(member)
    return atoms


def split(atom: Atom, outer: Expression, inner: Expression) -> tuple[Atom, Atom]:
    """Splits an atom of extent outer*inner in two."""
    atom.parts = (Atom(outer, set(atom.members)), Atom(inner, set(atom.members)))
    return atom.parts


def _unite(a: Atom, b: Atom) -> bool:
    # One value with an axis twice would be a diagonal: the user of such an edge reads a renamed
    # one.
    small, large = (a, b) if len(a.members) < len(b.members) else (b, a)
    if not small.members.isdisjoint(large.members):
        return False
    large.members |= small.members
    small.parent = large
    return True


def unify(a: Iterable[Atom], b: Iterable[Atom]) -> bool:
    """Makes two dimensions of equal extent the same atoms, where legal; True if they are now."""
    # Union-find over digits: an atom is a set of dimensions that share one loop. Reshapes, merged
    # heads and windows vanish here because their index maps are mixed-radix numbers, digit by
    # digit.
    # From the innermost end: there both positions are the digit of stride 1. Where one atom's
    # extent divides the other's, the longer one is two digits, and its inner one is the shorter
    # atom.
    left, right = resolve(a), resolve(b)
    while left and right:
        x, y = left[-1], right[-1]
        if x is y:
            pass
        elif x.extent == y.extent:
            if not _unite(x, y):
                return False
        elif (outer := x.extent.exact_div(y.extent)) is not None and outer != _ONE:
            left[-1:] = split(x, outer, y.extent)
            continue
        elif (outer := y.extent.exact_div(x.extent)) is not None and outer != _ONE:
            right[-1:] = split(y, outer, x.extent)
            continue
        else:
            return False
        left.pop()
        right.pop()
    return not left and not right


def digits(dimension: Iterable[Atom], divisor: Expression, extent: Expression) -> Dimension | None:
    """The atoms of `(i // divisor) % extent` for index i of the dimension, splitting at both ends.

    None if the dimension does not split there.
    """
    atoms = resolve(dimension)
    taken: Dimension = []
    for position, wanted in ((0, divisor), (1, extent)):
        while wanted != _ONE:
            if not atoms:
                return None
            atom = atoms.pop()
            rest = wanted.exact_div(atom.extent)
            if rest is None:
                outer = atom.extent.exact_div(wanted)
                if outer is None or outer == _ONE:
                    return None
                high, atom = split(atom, outer, wanted)
                atoms.append(high)
                rest = _ONE
            wanted = rest
            if position == 1:
                taken.insert(0, atom)
    return taken
