"""Selection: the chosen program, as terms with a residence, layouts and merges.

`select.fast` makes one by rules, the search makes many from genomes; everything below is a function of
it. The kernels are the groups of stored values (`roots` of kernels) with everything inlined or local
below them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from luminal.algebra.lower import Root
from luminal.algebra.terms import Frame, Term, term_order
from luminal.errors import VerifyError
from luminal.hlir.graph import Assign, Output
from luminal.program.buffers import ROW_MAJOR, Layout


class Residence(enum.Enum):
    """Where a value lives between its computation and its uses."""

    INLINE = "inline"  # nowhere: recomputed in each consumer
    LOCAL = "local"  # kept for the current tile inside one kernel
    STORED = "stored"  # written to a buffer
    LOCAL_STORED = "local+stored"

    @property
    def is_stored(self) -> bool:
        return self in (Residence.STORED, Residence.LOCAL_STORED)


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for one value. `layouts[0]` is canonical; a stored value may have several."""

    residence: Residence
    layouts: tuple[Layout, ...] = (ROW_MAJOR,)


@dataclass(frozen=True, slots=True)
class Selection:
    """`choices` has every term below the roots, operands first. `merges` are disjoint sets of stored
    terms computed in one kernel; `reads` gives the layout an operand edge (user, argument) reads, where
    it is not the canonical one. `frames` orders the axes of stored values.
    """

    roots: tuple[Root, ...]
    choices: Mapping[Term, Choice]
    frames: Mapping[Term, Frame]
    merges: tuple[frozenset[Term], ...]
    reads: Mapping[tuple[Term, int], int]
    bodies: Mapping[int, Selection]  # by id of the lowered body, which the Loop term holds

    def is_stored(self, term: Term) -> bool:
        return self.choices[term].residence.is_stored

    def stored(self) -> Iterator[Term]:
        return (term for term in self.choices if self.is_stored(term))


def must_store(term: Term, roots: tuple[Root, ...]) -> bool:
    """Values that no choice can inline: roots and opaque values."""
    return term.is_opaque or any(root.term is term for root in roots)


def verify(selection: Selection) -> None:
    """Raises VerifyError unless every term has a choice and what must be stored is."""
    order = term_order(root.term for root in selection.roots)
    for term in order:
        if term not in selection.choices:
            raise VerifyError(f"selection: {term!r} is in use and has no choice")
        if term.is_opaque and not selection.is_stored(term):
            raise VerifyError(f"selection: {term!r} is opaque and must be stored")
        if term.is_leaf and selection.is_stored(term):
            raise VerifyError(f"selection: {term!r} is a leaf and is never stored")
    seen: set[Term] = set()
    for merge in selection.merges:
        for term in merge:
            if not selection.is_stored(term) or term in seen:
                raise VerifyError(f"selection: {term!r} is merged twice or is not stored")
            seen.add(term)


def to_text(selection: Selection) -> str:
    """The selection as text: terms numbered by first use from the roots."""
    numbers: dict[Term, int] = {}
    axes: dict[str, str] = {}
    lines = []
    for term in term_order(root.term for root in selection.roots):
        numbers[term] = len(numbers)
        choice = selection.choices[term]
        layouts = ", ".join(map(str, choice.layouts)) if choice.residence.is_stored else ""
        home = f"{choice.residence.value} {layouts}".strip()
        lines.append(f"t{numbers[term]} = {term_text(term, numbers)}   # {home}")
    for root in selection.roots:
        frame = ", ".join("*".join(a.name for a in d) or "1" for d in root.frame)
        lines.append(f"{_sink(root)} = t{numbers[root.term]}[{frame}]")
    for merge in selection.merges:
        lines.append(f"merge {' '.join(sorted(f't{numbers[t]}' for t in merge))}")
    names = sorted({a for t in numbers for a in t.axes}, key=lambda a: a.sort_key)
    axes = {a.name: str(a.extent) for a in names}
    head = ", ".join(f"{name}<{extent}" for name, extent in axes.items())
    return "\n".join([f"axes {head}", *lines])


def _sink(root: Root) -> str:
    match root.sink:
        case Output(_, name):
            return f"output {name}"
        case Assign(state):
            return f"assign {state.name}"
        case _:
            return "result"


def term_text(term: Term, numbers: Mapping[Term, int]) -> str:
    """One term, operands by number: `Sum{a2} t3`, `At t1 {a0: a0 + 1}`."""
    args = [f"t{numbers[arg]}" for arg in term.args]
    if term.op == "Leaf":
        attrs = term.attrs.value.node.attrs
        name = getattr(attrs, "name", None) or getattr(getattr(attrs, "state", None), "name", "")
        frame = ", ".join("*".join(a.name for a in d) or "1" for d in term.attrs.frame)
        return f"{term.attrs.value.node.op.name} {name}[{frame}]: {term.dtype}"
    if term.op == "Literal":
        return f"{term.dtype} {term.attrs.value(term.dtype)}"
    if term.op == "Index":
        return f"Index({term.attrs}): {term.dtype}"
    if term.is_reduction:
        return f"{term.op}{{{', '.join(a.name for a in term.attrs)}}} {args[0]}"
    if term.op == "At":
        parts = (f"{a.name}: {args[1 + i] if isinstance(i, int) else i}" for a, i in term.attrs)
        return f"At {args[0]} {{{', '.join(parts)}}}"
    suffix = f".{term.attrs.index}" if term.is_opaque else ""
    return f"{term.op}{suffix} {' '.join(args)}: {term.dtype}"
