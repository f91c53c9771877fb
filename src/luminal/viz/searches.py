"""What a search did, in words: its candidates, and how the program it chose differs from `fast`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from luminal.algebra.terms import Term
from luminal.base.origins import described
from luminal.program.launch_list import KernelLaunch, walk
from luminal.runtime.report import SearchSummary, search_facts
from luminal.search.fingerprint import by_fingerprint, fingerprints
from luminal.search.genome import Genome
from luminal.search.space import Space


def search(summary: SearchSummary, space: Space) -> dict[str, Any]:
    """The document's part of a search: its summary, the candidates, the difference."""
    facts = search_facts(summary)
    del facts["trials"], facts["genome"]
    return {
        **facts,
        "genes": [
            {
                "candidate": number,
                "seconds": trial.seconds,
                "side": trial.side,
                "changed": trial.changed,
                "run_seconds": trial.run_seconds,
                "gain": trial.gain,
                "outcome": trial.outcome,
                "reason": trial.reason,
            }
            for number, trial in enumerate(summary.trials)
        ],
        "difference": [*difference(space, genome_of(summary))],
    }


def genome_of(summary: SearchSummary | None) -> Genome:
    """The choices of the program that a search chose; those of `fast` without one."""
    if summary is None or not summary.genome:
        return Genome()
    return Genome.parse(summary.genome)


def difference(space: Space, genome: Genome) -> Iterator[str]:
    """How a genome's program differs from that of `fast`, a sentence for each choice."""
    if genome == Genome():
        yield "the program is that of fast: no choice of the search is in it"
        return
    fast, chosen = space.decode(Genome()), space.decode(genome)
    names = _names(space, fast.stages.lowered) | _names(space, chosen.stages.lowered)
    for classes in space.all_classes() if genome.spellings else ():
        numbers = {number: term for term, number in classes.known.items()}
        by_name = {eclass.fingerprint: eclass for eclass in classes.genes()}
        for key, wanted in genome.spellings:
            eclass = by_name.get(key)
            if eclass is None:
                continue
            spelling = next((s for s in eclass.spellings if s.fingerprint == wanted), None)
            if spelling is not None:
                value = _value(numbers.get(eclass.number))
                rule = f"by the rule {spelling.rule}" if spelling.rule else "as it was recorded"
                yield f"{value} is spelled otherwise, {rule}"
    for key, residence in genome.residences:
        yield f"{_value(names.get(key))} is {residence}"
    for key, layout in genome.layouts:
        yield f"the weight {_value(names.get(key))} is read in layout {layout}"
    for key in genome.apart:
        yield f"{_value(names.get(key))} has a kernel of its own"
    for key, other in genome.joined:
        yield f"{_value(names.get(key))} shares the kernel of {_value(names.get(other))}"
    kernels = _kernels(chosen.stages.program, [o.name for o in chosen.stages.origins])
    for key, text in genome.tuned:
        knobs = ", ".join(f"{name} = {value}" for name, value in json.loads(text))
        yield f"the kernel {kernels.get(key, 'that this program has no more')}: {knobs}"
    if genome.unrolled:
        yield "Loops are written out in the launch list"
    if genome.dispatch is not None:
        yield f"launches are given to the device as {genome.dispatch}"


def _names(space: Space, lowered: Any) -> dict[str, Term]:
    """The terms of a program and of its Loops' bodies by their names."""
    terms = by_fingerprint(fingerprints(lowered))
    for term in [*terms.values()]:
        if term.op == "Loop":
            terms = {**_names(space, term.attrs.body), **terms}
    return terms


def _value(term: Term | None) -> str:
    """A value in words: its operation and where it was recorded."""
    if term is None:
        return "a value"
    where = described([term.recorded])
    return f"{term.op} of {where}" if where else term.op


def _kernels(program: Any, names: list[str]) -> Mapping[str, str]:
    """Kernels in words, by their names in genomes."""
    words: dict[str, str] = {}
    for launch in walk((*program.prologue, *program.launches)):
        if isinstance(launch, KernelLaunch):
            where = described(launch.origins)
            of = f" of {where}" if where else ""
            words.setdefault(names[launch.kernel], f"k{launch.kernel} ({launch.label}{of})")
    return words
