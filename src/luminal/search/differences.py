"""How a program differs from that of `fast`: a sentence for each choice of its genome."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from luminal.algebra.lower import Lowered
from luminal.algebra.terms import Term
from luminal.egraph.spelling_text import SpellingTexts
from luminal.search.fingerprint import by_fingerprint, fingerprints
from luminal.search.genome import Genome
from luminal.search.space import Choice, Space
from luminal.search.words import kernels_in_words, knobs_in_words, value_in_words

DEPTH = 5  # operations of a spelling, one in the other


class Difference(NamedTuple):
    """A choice that `fast` makes otherwise: what takes it back, and a sentence."""

    taken_back: Choice
    text: str


def differences(space: Space, genome: Genome) -> Iterator[Difference]:
    """The choices of a genome that means something in its program, in the genome's order."""
    if genome == Genome():
        return
    fast, chosen = space.decode(Genome()), space.decode(genome)
    names = _names(fast.stages.lowered) | _names(chosen.stages.lowered)

    def of(name: str) -> str:
        return value_in_words(names.get(name))

    yield from _spelled(space, genome)
    kernels = kernels_in_words(chosen.stages)
    said = [
        *(("residences", key, f"{of(key)} is {where}") for key, where in genome.residences),
        *(
            ("layouts", k, f"the weight {of(k)} is read in layout {how}")
            for k, how in genome.layouts
        ),
        *(("apart", key, f"{of(key)} has a kernel of its own") for key in genome.apart),
        *(("joined", k, f"{of(k)} shares the kernel of {of(other)}") for k, other in genome.joined),
        *(
            ("tuned", key, f"{kernels[key]} has another schedule: {knobs_in_words(knobs)}")
            for key, knobs in genome.knobs.items()
            if key in kernels
        ),
    ]
    for kind, key, text in said:
        yield Difference((kind, key, None), text)
    if genome.unrolled:
        yield Difference(("unrolled", "", None), "Loops are written out in the launch list")
    if genome.dispatch is not None:
        text = f"launches are given to the device as {genome.dispatch}"
        yield Difference(("dispatch", "", None), text)


def _spelled(space: Space, genome: Genome) -> Iterator[Difference]:
    """The values that are spelled otherwise, by the rule that made the spelling."""
    wanted = dict(genome.spellings)
    for classes in space.all_classes() if wanted else ():
        terms = {number: term for term, number in classes.known.items()}
        texts = SpellingTexts(classes)
        for eclass in classes.genes():
            default = texts.of(eclass.spellings[0], DEPTH)
            for spelling in eclass.spellings:
                if spelling.fingerprint == wanted.get(eclass.fingerprint):
                    rule = f"by the rule {spelling.rule}" if spelling.rule else "as recorded"
                    value = value_in_words(terms.get(eclass.number))
                    text = f"{value} is {texts.of(spelling, DEPTH)}, {rule}, in place of {default}"
                    yield Difference(("spellings", eclass.fingerprint, None), text)


def _names(lowered: Lowered) -> dict[str, Term]:
    """The terms of a program and of its Loops' bodies by their names."""
    terms = by_fingerprint(fingerprints(lowered))
    for term in [*terms.values()]:
        if term.op == "Loop":
            terms = {**_names(term.attrs.body), **terms}
    return terms
