"""The spellings of values: which an e-graph has for each, which one was chosen, why not the others.

A spelling is judged as a search would judge it: the program with it, and else as it is, is decoded,
and its predicted seconds are compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from luminal.base.errors import LuminalError
from luminal.base.numerics import Class
from luminal.base.records import dataclass
from luminal.egraph import Classes
from luminal.egraph.classes import EClass, Spelling
from luminal.egraph.spelling_text import SpellingTexts
from luminal.rules import RULES
from luminal.runtime.report_text import duration
from luminal.search.cost_model import CostModel
from luminal.search.genome import Genome
from luminal.search.space import Space
from luminal.viz.terms import TermValues
from luminal.viz.values import Ids

MOST_CLASSES = 400  # that are shown, those in a program before those in its Loops' bodies
SECONDS = 6.0  # of judging spellings; those behind have no cost
ALIKE = 0.005  # of the cost: less is told as no difference

_KINDS: Mapping[str, Class] = {rule.name: rule.kind for rule in RULES}


@dataclass(slots=True)
class Judge:
    """What programs with another spelling should cost, beside the one that is `chosen`."""

    space: Space
    chosen: Genome
    model: CostModel
    deadline: float = field(default_factory=lambda: time.monotonic() + SECONDS)
    base: tuple[float, str] = (0.0, "")

    def __post_init__(self) -> None:
        self.base = self.of(self.chosen)

    def of(self, genome: Genome) -> tuple[float, str]:
        """The predicted seconds of a run, and the text that names the program."""
        candidate = self.space.decode(genome)
        return self.model.cost(candidate.program).seconds, candidate.text

    def why_not(self, eclass: EClass, spelling: Spelling) -> tuple[float | None, str]:
        """The predicted seconds with a spelling, and in words why it was not chosen."""
        if time.monotonic() > self.deadline:
            return None, "not judged: the time for that was used up by the values before"
        is_default = spelling is eclass.spellings[0]
        value = None if is_default else spelling.fingerprint
        try:
            cost, text = self.of(self.chosen.with_choice("spellings", eclass.fingerprint, value))
        except LuminalError as error:
            return None, f"its program does not compile: {error}"
        base, name = self.base
        if text == name:
            return cost, "makes the same kernels"
        if cost > base * (1 + ALIKE):
            times = f"{cost / base:.3g} times as long" if base else "longer"
            return cost, (
                f"a run should take {times}: {duration(cost)}, with the chosen one {duration(base)}"
            )
        if cost < base * (1 - ALIKE):
            return cost, (
                f"a run should take {duration(cost)}, with the chosen one {duration(base)}; rules "
                "do not try it: a search (mode='optimal') times it"
            )
        return cost, f"should take as long ({duration(cost)}); what was there first is kept"


def spellings(
    space: Space, genome: Genome, dims: Mapping[str, int], values: TermValues
) -> list[dict[str, Any]]:
    """The values of the graph that have more than one spelling, the chosen one of each first."""
    judge = Judge(space, genome, CostModel(dims, space.backend))
    rows: list[dict[str, Any]] = []
    for classes in space.all_classes():
        texts = SpellingTexts(classes)
        of = _values_of(classes, values)
        genes = [eclass for eclass in classes.genes() if of.get(eclass.number)]
        for eclass in genes[: MOST_CLASSES - len(rows)]:
            nodes = [*_nodes(eclass, genome, judge, texts)]
            nodes.sort(key=lambda node: not node["chosen"])
            rows.append({"of": of[eclass.number], "nodes": nodes})
    return rows


def refused(space: Space) -> str:
    """Which rules the program's numerics leave out, in words."""
    kinds = [str(kind) for kind in Class if not space.numerics.allows(kind)]
    if not kinds:
        return "all rules may be used: numerics='relaxed'"
    count = sum(not space.numerics.allows(rule.kind) for rule in RULES)
    return (
        f"{count} rules of kind {' and '.join(kinds)} are left out, as "
        f"numerics={space.numerics.value!r} asks: what they make is no spelling here"
    )


def _nodes(
    eclass: EClass, genome: Genome, judge: Judge, texts: SpellingTexts
) -> Iterator[dict[str, Any]]:
    wanted = dict(genome.spellings).get(eclass.fingerprint, eclass.spellings[0].fingerprint)
    if all(spelling.fingerprint != wanted for spelling in eclass.spellings):
        wanted = eclass.spellings[0].fingerprint
    for spelling in eclass.spellings:
        is_chosen = spelling.fingerprint == wanted
        cost, why_not = (judge.base[0], "") if is_chosen else judge.why_not(eclass, spelling)
        kind = _KINDS.get(spelling.rule)
        yield {
            "text": texts.of(spelling),
            "rule": spelling.rule,
            "kind": "" if kind is None else str(kind),
            "cost": cost,
            "chosen": is_chosen,
            "why_not": why_not,
        }


def _values_of(classes: Classes, values: TermValues) -> dict[int, Ids]:
    """The values that each class is, by its number."""
    ids: dict[int, set[int]] = {}
    for term, number in classes.known.items():
        ids.setdefault(number, set()).update(values(term))
    return {number: tuple(sorted(some)) for number, some in ids.items()}
