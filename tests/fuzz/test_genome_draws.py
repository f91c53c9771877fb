"""No draw ends a search: any structure with any knobs decodes, and what is offered is legal."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from luminal.backends.cpu import backend
from luminal.hlir.graph import Graph
from luminal.kernel.knobs import Knobs
from luminal.program.steps import CascadeStep, NestStep
from luminal.search.genome import Genome, library_of
from luminal.search.space import Candidate, Space
from tests.fuzz.genome_checks import walked_structure
from tests.fuzz.genome_graphs import GRAPHS
from tests.long_share import mostly_long

NAMES = ("attention_grouped", "attention_masked", "llama_block", "pools", "convolutions")
FEW, MANY = 2, 500  # structures of a graph
DRAWS = 4  # of knobs for a structure
MOST_CHANGES = 6
STRICT = 3  # offered schedules of a kernel that are placed one by one


class Draws:
    """Structures of a graph, and the knobs that all of them offered so far."""

    def __init__(self, graph: Graph, seed: int) -> None:
        self.rng = random.Random(seed)
        self.space = Space(graph, backend.current())
        self.names: dict[str, None] = {}
        self.offered: dict[Knobs, None] = {}
        self.checked: set[str] = set()

    def structure(self) -> Candidate:
        """A program of random moves; what its kernels offer is legal for them."""
        space, rng = self.space, self.rng
        genome = walked_structure(space, rng, rng.randint(0, MOST_CHANGES))
        candidate = space.decode(genome)
        for number, origin in enumerate(candidate.stages.origins):
            schedules = space.knobs(candidate, number)
            if origin.name not in self.checked:
                step = origin.steps[0]
                if isinstance(step, NestStep | CascadeStep):
                    offered = [knobs for knobs in schedules if not library_of(knobs)]
                    for knobs in rng.sample(offered, min(STRICT, len(offered))):
                        space.backend.schedules.place(step, knobs)
                self.checked.add(origin.name)
            self.names[origin.name] = None
            self.offered.update(dict.fromkeys(schedules))
        return candidate

    def draws(self, candidate: Candidate) -> list[Genome]:
        """The structure with knobs of its own, of other structures and kernels, and of two."""
        rng, genome = self.rng, candidate.genome
        origins = candidate.stages.origins
        own = {o.name: self.space.knobs(candidate, k) for k, o in enumerate(origins)}
        recorded = list(self.offered)

        def other(name: str) -> Knobs:
            return rng.choice(recorded)

        def mixed(name: str) -> Knobs:
            merged = {**dict(rng.choice(own.get(name, recorded))), **dict(rng.choice(recorded))}
            return tuple(sorted(merged.items()))

        choices: tuple[Callable[[str], Knobs], ...] = (
            lambda name: rng.choice(own[name]), other, mixed,
        )  # fmt: skip
        found = []
        for number in range(DRAWS):
            pick = choices[number % len(choices)]
            names = own if number % len(choices) == 0 else self.names
            found.append(genome.with_tuned({name: pick(name) for name in names}))
        return found


def check(name: str, count: int, seed: int) -> None:
    drawn = Draws(GRAPHS[name]()[0].graph, seed)
    for _ in range(count):
        structure = drawn.structure()
        for genome in drawn.draws(structure):
            candidate = drawn.space.decode(genome)
            assert len(candidate.program.launches) == len(structure.program.launches)


@pytest.mark.parametrize("name", mostly_long(NAMES, 2))
def test_any_structure_takes_any_knobs(name: str) -> None:
    check(name, FEW, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_many_structures_take_any_knobs(name: str) -> None:
    check(name, MANY, seed=2)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in GRAPHS if name not in NAMES])
def test_structures_of_every_graph_take_any_knobs(name: str) -> None:
    check(name, 60, seed=3)
