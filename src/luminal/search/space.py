"""The programs of one graph: decodes genomes, lists the changes that make others.

Decoding a genome: the e-graph spells the program, `fast` decides what the genome leaves open, and
the kernels get their schedules. Every step is total, so every genome is a right program.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from luminal.algebra.lower import Lowered, bodies
from luminal.algebra.terms import Term
from luminal.backends.backend import Backend
from luminal.base import config
from luminal.base.costs import Weights
from luminal.base.numerics import Numerics
from luminal.base.records import dataclass
from luminal.compiler import compile
from luminal.compiler.assemble import UNTUNED, text_key
from luminal.compiler.compile import Stages
from luminal.egraph import Classes, Limits, saturate
from luminal.hlir.graph import Graph
from luminal.hlir.ops import Value
from luminal.kernel.knobs import Knobs
from luminal.program import launch_text
from luminal.program.kernel_graph import kernel_reads
from luminal.program.launch_list import Program
from luminal.program.selection import Residence, Selection
from luminal.program.steps import CallStep, CustomStep, LoopStep, NestStep
from luminal.program.unroll import unroll
from luminal.runtime.report import RuleUse
from luminal.search.fingerprint import by_fingerprint, fingerprints
from luminal.search.genome import Genome, called_by
from luminal.search.words import value_in_words
from luminal.selection import dots, fast, layouts
from luminal.selection.bodies import is_weight, weights_of
from luminal.selection.calls import with_calls
from luminal.selection.columns import columns, share_columns
from luminal.selection.rewrite import Respelled
from luminal.selection.stored import stored_anyway

Choice = tuple[str, str, str | None]
"""Kind, key and value of one choice in a genome (None: as `fast` does it)."""


JOINS = 4  # kernels that one may join, at most
MOST_DECODED = 512  # a pass over all moves orders them first and then times them


class Move(NamedTuple):
    """One change of a genome."""

    choices: tuple[Choice, ...]
    note: str  # what is changed, for reports

    def of(self, genome: Genome) -> Genome:
        """The genome after the move."""
        for kind, key, value in self.choices:
            genome = genome.with_choice(kind, key, value)
        return genome


def _move(kind: str, key: str, value: str | None, note: str) -> Move:
    return Move(((kind, key, value),), note)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A genome and what it decodes to. `text` names the program: equal programs, equal texts."""

    genome: Genome
    stages: Stages
    text: str

    @property
    def program(self) -> Program:
        return self.stages.program


@dataclass(frozen=True, slots=True)
class _Spelled:
    """A spelled body or program with its Selection and the names of terms, of bodies in it too."""

    lowered: Lowered
    selection: Selection
    names: Mapping[Term, str]


# Decoding is cheap (30 ms for a Llama block, 3 for other schedules of the same kernels), so
# candidates are decoded first and those whose program was seen are passed over. Sorting out equal
# spellings before would need to know which kernels they lead to.
class Space:
    """All programs of a graph for a backend. `limits` bound the e-graph; `dispatch` is that of all
    programs, where it is no choice.
    """

    def __init__(
        self,
        graph: Graph,
        backend: Backend,
        numerics: Numerics = Numerics.STANDARD,
        limits: Limits | None = None,
        dispatch: str | None = None,
    ) -> None:
        self.backend = backend
        self.dispatch = dispatch
        self.costs = backend.costs
        self.numerics = numerics
        self.limits = limits or Limits()
        self.graph, self.lowered = compile.lower_to_algebra(graph, backend)
        self._bodies = {id(body): body for body in bodies(self.lowered)}
        self._decoded: dict[Genome, Stages] = {}  # by genomes without schedules, a few
        self._defaults: dict[int, Respelled] = {}
        self._classes: dict[int, Classes] = {}
        self._knobs: dict[tuple[str, tuple[str, ...]], tuple[Knobs, ...]] = {}

    def _default(self, body: Lowered) -> Respelled:
        if id(body) not in self._defaults:
            self._defaults[id(body)] = fast.respell(body, self.costs, self.numerics)
        return self._defaults[id(body)]

    def classes(self, body: Lowered) -> Classes:
        """The e-graph of the program or of a Loop's body, saturated when it is first needed."""
        if id(body) not in self._classes:
            default = self._default(body)
            self._classes[id(body)] = saturate(
                body, self.costs, default.lowered, default.same, self.numerics, self.limits
            )
        return self._classes[id(body)]

    def all_classes(self) -> tuple[Classes, ...]:
        """The e-graphs of the program and of its Loops' bodies."""
        return tuple(self.classes(body) for body in self._bodies.values())

    # --- genomes to programs

    def decode(self, genome: Genome) -> Candidate:
        """The program of a genome: knobs that a kernel does not have are passed over."""
        # A search tries many schedules of one structure, so the costly part (e-graph to Selection
        # to steps) is kept for genomes that differ in schedules only.
        untuned = replace(genome, tuned=(), unrolled=False, dispatch=None)
        untuned_stages = self._decoded.get(untuned)
        if untuned_stages is not None:
            stages = compile.reschedule(untuned_stages, self.backend, genome.knobs)
        else:
            stages = self._decode(genome)
            self._decoded[untuned] = stages
            if len(self._decoded) > MOST_DECODED:
                self._decoded.pop(next(iter(self._decoded)))
        stages = self._with_calls(stages, genome)
        if genome.unrolled:
            stages = replace(stages, program=unroll(stages.program))
        if genome.dispatch in self.dispatches or self.dispatch is not None:
            dispatch = self.dispatch or genome.dispatch
            stages = replace(stages, program=replace(stages.program, dispatch=dispatch))
        texts = [launch_text.to_text(stages.program), *(o.text for o in stages.origins)]
        return Candidate(genome, stages, text_key("\n".join(texts)))

    def _decode(self, genome: Genome) -> Stages:
        spelled = self._spell(self.lowered, genome, {})
        wished = dict(genome.layouts)
        wishes = {t: wished[name] for t, name in spelled.names.items() if name in wished}
        selection = layouts.by_rule(spelled.selection, self.backend.layouts, self.numerics, wishes)
        selection = dots.by_rule(selection, self.backend.target.dots, self.numerics)
        return compile.finish(self.graph, spelled.lowered, selection, self.backend, genome.knobs)

    def _with_calls(self, stages: Stages, genome: Genome) -> Stages:
        """The program with the kernels that a library computes, where it can: kernels are named by
        their default schedules, so they are looked for in the program of these.
        """
        wished = genome.calls
        default = compile.reschedule(stages, self.backend, UNTUNED) if wished else stages
        calls = {
            step.fused.stores[0].term: library
            for origin in default.origins
            for step in origin.steps
            for library in self.backend.library_calls(step, self.numerics)
            if not isinstance(step, CustomStep) and wished.get(origin.name) == library
        }
        if not calls:
            return stages
        selection = with_calls(stages.selection, calls)
        graph, lowered, placed = stages.graph, stages.lowered, stages.placed
        return compile.finish(graph, lowered, selection, self.backend, genome.knobs, placed=placed)

    def _spell(
        self,
        body: Lowered,
        genome: Genome,
        done: dict[int, _Spelled],
        weights: Set[Value] = frozenset(),
    ) -> _Spelled:
        """A body and all in it spelled, by id of the body as it was lowered in `done`; `weights`:
        its arguments that are weights outside.
        """
        # Bodies of Loops first: the program around needs their Selections, and equal layers share
        # one.
        if id(body) in done:
            return done[id(body)]
        if genome.spellings:
            lowered = self.classes(body).spell(dict(genome.spellings))
        else:
            lowered = self._default(body).lowered
        # A choice that names a term which this spelling lacks is passed over: decoding is total.
        lowered, names = _with_columns(lowered, genome)
        terms = by_fingerprint(names)
        wishes = fast.Wishes(
            {terms[k]: Residence(v) for k, v in genome.residences if k in terms},
            frozenset(terms[k] for k in genome.apart if k in terms),
            tuple((terms[k], terms[v]) for k, v in genome.joined if k in terms and v in terms),
        )
        loops = {id(t.attrs.body): t.attrs.body for t in names if t.op == "Loop"}
        weights_of_bodies = weights_of(names, partial(is_weight, arguments=weights))
        inside = {
            k: self._spell(inner, genome, done, weights_of_bodies[k]) for k, inner in loops.items()
        }
        inner_choices = {key: spelled.selection for key, spelled in inside.items()}
        selection = fast.choose(lowered, self.costs, self.numerics, wishes, inner_choices, weights)
        for spelled in inside.values():
            names = {**spelled.names, **names}
        done[id(body)] = _Spelled(lowered, selection, names)
        return done[id(body)]

    # --- the changes that make other programs

    def moves(self, candidate: Candidate) -> list[Move]:
        """Every single change of the candidate's structure, in a fixed order."""
        genome = candidate.genome
        changes = [*self.dispatched(candidate)]
        if any(isinstance(step, LoopStep) for step in candidate.stages.partition.steps):
            value = None if genome.unrolled else "yes"
            changes.append(_move("unrolled", "", value, "Loops written out in the launch list"))
        done: dict[int, _Spelled] = {}
        for body in self._bodies.values():
            spelled = self._spell(body, genome, done)
            changes += self._spellings(body, genome)
            changes += _residences(spelled, genome, self.costs.weights)
            changes += _merges(spelled, genome)
            changes += _joins(spelled, genome)
        changes += self._layouts(candidate, done[id(self.lowered)].names)
        return changes

    @property
    def dispatches(self) -> tuple[str, ...]:
        """How launches may be given to the device, `fast`'s way first; nothing if all are forced
        to one way.
        """
        is_forced = self.dispatch is not None or config.get("LUMINAL_DISPATCH") is not None
        return () if is_forced else self.backend.dispatches

    def dispatched(self, candidate: Candidate) -> Iterator[Move]:
        """The launches of a program given to the device in other ways."""
        first = next(iter(self.dispatches), None)
        for dispatch in self.dispatches:
            if dispatch != (candidate.genome.dispatch or first):
                value = None if dispatch == first else dispatch
                yield _move("dispatch", "", value, f"launches as {dispatch}")

    def _layouts(self, candidate: Candidate, names: Mapping[Term, str]) -> Iterator[Move]:
        """Weights read as they are that could be read in panels, and the other way round."""
        wished, selection = dict(candidate.genome.layouts), candidate.stages.selection
        for gene in layouts.all_genes(selection, self.backend.layouts, self.numerics):
            name, weight = names[gene.weight], value_in_words(gene.weight)
            if name in wished:
                yield _move("layouts", name, None, f"{weight} read in the layout fast has it in")
                continue
            for layout in (str(offered) for offered in gene.layouts if offered != gene.now):
                yield _move("layouts", name, layout, f"{weight} read in layout {layout}")

    def _spellings(self, body: Lowered, genome: Genome) -> Iterator[Move]:
        chosen, classes = dict(genome.spellings), self.classes(body)
        terms = {number: term for term, number in classes.known.items()}
        for gene in classes.genes():
            value = value_in_words(terms.get(gene.number))
            default = gene.spellings[0].fingerprint
            now = chosen.get(gene.fingerprint, default)
            for spelling in gene.spellings:
                if spelling.fingerprint == now:
                    continue
                other = None if spelling.fingerprint == default else spelling.fingerprint
                note = f"{value} {f'by {spelling.rule}' if spelling.rule else 'as recorded'}"
                yield _move("spellings", gene.fingerprint, other, note)

    def random_genome(self, rng: random.Random, changes: int) -> Genome:
        """A genome of some random moves of the fast program's and random schedules."""
        genome = Genome()
        moves = self.moves(self.decode(genome))
        for move in rng.sample(moves, min(changes, len(moves))):
            genome = move.of(genome)
        candidate = self.decode(genome)
        tuned = {
            origin.name: rng.choice(self.knobs(candidate, kernel))
            for kernel, origin in enumerate(candidate.stages.origins)
        }
        return genome.with_tuned(tuned)

    def knobs(self, candidate: Candidate, kernel: int) -> tuple[Knobs, ...]:
        """The schedules of a kernel of the candidate's program, the default first."""
        name, steps, _ = candidate.stages.origins[kernel]
        first = steps[0]
        libraries = self.backend.library_calls(first, self.numerics)
        if (name, libraries) not in self._knobs:
            loops = NestStep(first.fused) if isinstance(first, CallStep) else first
            default, *others = self.backend.schedules.space(loops)
            called = (
                called_by(library, knobs)
                for library in libraries
                if not isinstance(loops, CustomStep)
                for knobs in self.backend.schedules.space(CallStep(loops.fused, library))
            )
            self._knobs[name, libraries] = (default, *called, *others)
        return self._knobs[name, libraries]

    def rules(self) -> tuple[RuleUse, ...]:
        """What each rewrite rule did, over all e-graphs so far."""
        total: dict[str, RuleUse] = {}
        for classes in self._classes.values():
            for row in classes.report.rows:
                _, _, matches, nodes, seconds = total.get(row.rule, RuleUse("", "", 0, 0, 0.0))
                total[row.rule] = RuleUse(
                    row.rule,
                    str(row.kind),
                    matches + row.matches,
                    nodes + row.nodes,
                    seconds + row.seconds,
                )
        return tuple(total.values())


def _with_columns(lowered: Lowered, genome: Genome) -> tuple[Lowered, dict[Term, str]]:
    """The program with products along the columns of those that they are joined with, and the names
    of its terms: those of the program before, which such a choice does not change.
    """
    names = fingerprints(lowered)
    terms = by_fingerprint(names)
    pairs = [(terms[k], terms[v]) for k, v in genome.joined if k in terms and v in terms]
    program, stored_instead = share_columns(Respelled(lowered, {}), pairs)
    if not stored_instead:
        return lowered, names
    old_names = {
        program.same[term]: name for term, name in names.items() if term not in stored_instead
    }
    old_names |= {now: names[term] for term, now in stored_instead.items()}
    new_names = fingerprints(program.lowered)
    return program.lowered, {term: old_names.get(term, name) for term, name in new_names.items()}


def _residences(spelled: _Spelled, genome: Genome, weights: Weights) -> Iterator[Move]:
    """Values stored that could be computed in their users, and the other way round."""
    selection = spelled.selection
    wished = dict(genome.residences)
    fixed = stored_anyway(selection.roots, selection.choices)
    for term, choice in selection.choices.items():
        if term in fixed or not (term.is_pointwise or term.is_reduction):
            continue
        name = spelled.names[term]
        note = value_in_words(term)
        if name in wished:
            yield _move("residences", name, None, f"{note} as fast has it")
        elif not choice.residence.is_stored:
            if term.is_reduction or not _is_light(term, weights):
                stored = ("residences", name, Residence.STORED.value)
                yield Move((stored,), f"{note} stored")
                yield Move((stored, ("apart", name, "yes")), f"{note} stored by its own kernel")
        elif term.is_reduction:
            yield _move("residences", name, Residence.LOCAL.value, f"{note} local")
        else:
            yield _move("residences", name, Residence.INLINE.value, f"{note} inline")
            yield _move("residences", name, Residence.LOCAL.value, f"{note} local")


def _is_light(term: Term, weights: Weights) -> bool:
    """A single cheap operation on leaves and scalars: storing it never pays."""
    simple = all(arg.is_leaf or arg.op in ("Literal", "Index") for arg in term.args)
    return simple and weights.of(term.op) < weights.load


def _merges(spelled: _Spelled, genome: Genome) -> Iterator[Move]:
    """Stored values that share a kernel and could have one of their own, and back."""
    apart = set(genome.apart)
    for merge in spelled.selection.merges:
        for term in sorted(merge, key=spelled.names.__getitem__):
            note = f"{value_in_words(term)} in a kernel of its own"
            yield _move("apart", spelled.names[term], "yes", note)
    for term in spelled.selection.stored():
        if spelled.names[term] in apart:
            note = f"{value_in_words(term)} merged as fast has it"
            yield _move("apart", spelled.names[term], None, note)


def _joins(spelled: _Spelled, genome: Genome) -> Iterator[Move]:
    """Stored values over the same axes, or along as many columns, that have something of a run in
    common and kernels of their own, joined, the nearest pairs first; and back.
    """
    selection, names, joined = spelled.selection, spelled.names, dict(genome.joined)
    together = {term: merge for merge in selection.merges for term in merge}
    touching: defaultdict[Term, list[Term]] = defaultdict(list)
    for term, reads in kernel_reads([*selection.choices], selection.is_stored).items():
        if names[term] in joined:
            note = f"{value_in_words(term)} apart, as fast has it"
            yield _move("joined", names[term], None, note)
        touched = [term, *sorted(reads, key=lambda read: read.id)]
        near = {other for read in touched for other in touching[read]}
        near -= together.get(term, frozenset())
        others = [t for t in near if t.phase is term.phase]
        others = [t for t in others if t.axes == term.axes or columns(term, t)]
        for other in sorted(others, key=lambda t: -t.id)[: JOINS if not term.is_opaque else 0]:
            if joined.get(names[term]) != names[other]:
                note = f"one kernel for {value_in_words(term)} and {value_in_words(other)}"
                yield _move("joined", names[term], names[other], note)
        for read in touched if not term.is_opaque else ():
            if read is term or read.is_run:
                touching[read].append(term)
