"""What saturation gives: classes of equal values, their spellings, and a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luminal.algebra.lower import Lowered
from luminal.algebra.terms import Phase, Term
from luminal.base.dtypes import DType
from luminal.base.numerics import Class
from luminal.base.records import dataclass
from luminal.egraph.spell import spell
from luminal.shape.expression import Symbol


@dataclass(frozen=True, slots=True)
class Spelling:
    """One way to compute a class: an operation on classes, by their numbers.

    `attrs` as in a Term, but text for a Literal (see `intern`). `fingerprint` names it in any
    process; `rule` made it ("" if the program has it).
    """

    op: str
    args: tuple[int, ...]
    attrs: Any
    dtype: DType
    fingerprint: str
    rule: str


@dataclass(frozen=True, slots=True)
class EClass:
    """Equal values. The first spelling is the default one."""

    number: int
    dtype: DType
    axes: frozenset[Symbol]
    phase: Phase
    fingerprint: str
    spellings: tuple[Spelling, ...]


@dataclass(frozen=True, slots=True)
class RuleRow:
    """What one rule did: matches, nodes that it made, seconds."""

    rule: str
    kind: Class
    matches: int
    nodes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """A saturation. `limit`: "nodes", "rounds" or "seconds" where one ended it, else ""."""

    rows: tuple[RuleRow, ...]
    rounds: int
    nodes: int
    classes: int
    limit: str
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """The classes of a program, operands of default spellings first. `roots`: their numbers."""

    classes: tuple[EClass, ...]
    roots: tuple[int, ...]
    lowered: Lowered
    default: Lowered
    known: Mapping[Term, int]  # the classes of the terms of both programs
    report: Report

    def genes(self) -> tuple[EClass, ...]:
        """The classes with a choice of spellings."""
        return tuple(eclass for eclass in self.classes if len(eclass.spellings) > 1)

    def spell(self, choices: Mapping[str, str]) -> Lowered:
        """The program with the spellings chosen, by fingerprints of class and spelling.

        Total: what is not known is ignored, and a choice that would close a cycle gives way to the
        default. Without choices it is the default program itself.
        """
        chosen: dict[int, Spelling] = {}
        for gene in self.genes():
            wanted = choices.get(gene.fingerprint)
            for spelling in gene.spellings[1:] if wanted is not None else ():
                if spelling.fingerprint == wanted:
                    chosen[gene.number] = spelling
        return spell(self, chosen) if chosen else self.default
