"""Equal layers whose collectives are read in their own layer, in a State of it, or after all of
them: what a Loop's trips may carry and what they may not.
"""

from __future__ import annotations

import random

import numpy as np

from luminal.base import dtypes
from luminal.hlir.graph import Assign, Builder, Graph, Output
from luminal.hlir.ops import Value
from luminal.memory.state import State
from luminal.program.launch_list import Launch, LoopLaunch, Program, is_end
from luminal.shape.expression import const
from tests.distributed.graphs import Drawn, collective

SIZE = 8
TAIL = 8
"""Operations behind all layers, more than lead away from one: the longest path is the layers'."""


class Layers:
    """Draws one kind of layer and stacks it; whole numbers, so that all sums are exact."""

    def __init__(self, seed: int, rank: int, ranks: int) -> None:
        self.rng, self.rank, self.ranks = random.Random(f"carried {seed}"), rank, ranks
        self.builder = Builder()
        self.states: list[State] = []
        self.sinks: list[Output | Assign] = []
        self.count = self.rng.choice((2, 3, 4, 5, 8))
        self.gathers = self.rng.random() < 0.5
        self.reads = self.rng.random() < 0.3  # the next layer reads a result
        self.chains = [self.chain() for _ in range(self.rng.randint(1, 3))]

    def chain(self) -> tuple[tuple[str, ...], bool, int]:
        """Collectives one after the other; is the last one's result stored in a State; work."""
        kinds = ("all_reduce", "all_reduce", "all_to_all", "permute")
        length = self.rng.choice((1, 1, 2, 3))
        chosen = tuple(self.rng.choice(kinds) for _ in range(length))
        return chosen, self.rng.random() < 0.9, self.rng.randint(0, 2)

    def drawn(self) -> Drawn:
        """All layers as one graph."""
        b, n = self.builder, const(SIZE)
        h = b.input("x", (n, n), dtypes.int32)
        for layer in range(self.count):
            h = self.layer(h, layer)
        for _ in range(TAIL):
            h = b.apply("Mul", self.mixed(h, 1), h)
        numbers = np.random.default_rng([self.rank, 7])
        x = numbers.integers(0, 3, (SIZE, SIZE)).astype(np.int32)
        graph = Graph((Output(h, "h"), *self.sinks))
        return Drawn(graph, tuple(self.states), {"x": x}, {})

    def layer(self, h: Value, layer: int) -> Value:
        b = self.builder
        weight = self.state(layer, "w", SIZE)
        w = b.state(weight)
        if self.gathers:
            part = b.state(self.state(layer, "part", SIZE // self.ranks))
            w = b.apply("Add", w, self.sent("all_gather", part, layer, "gather"))
        y = self.mixed(b.apply("Add", h, w), 3)
        for number, (kinds, is_stored, work) in enumerate(self.chains):
            g = self.mixed(b.apply("Mul", y, y), work)
            for k, kind in enumerate(kinds):
                g = self.mixed(self.sent(kind, g, layer, f"{number} {k}"), 1)
            if is_stored:
                state = weight if not number else self.state(layer, f"m{number}", SIZE)
                self.sinks.append(Assign(value=b.apply("Add", b.state(state), g), state=state))
            else:
                self.sinks.append(Output(g, f"layer {layer} {number}"))
            if self.reads and not number:
                y = b.apply("Maximum", y, g)
        return y

    def mixed(self, x: Value, times: int) -> Value:
        """Work that is a kernel of its own each time."""
        for axis in range(times):
            x, _ = self.builder.sort(x, axis % 2)
        return x

    def sent(self, kind: str, x: Value, layer: int, label: str) -> Value:
        pairs = [(r, (r + 1) % self.ranks) for r in range(self.ranks)] if kind == "permute" else []
        return collective(
            self.builder, kind, x, self.ranks, pairs=pairs, label=f"layers.{layer}.{label}"
        )

    def state(self, layer: int, name: str, rows: int) -> State:
        """A State of a layer; a part of something differs by rank."""
        state = State((rows, SIZE), dtypes.int32, name=f"layers.{layer}.{name}")
        own = self.rank if name == "part" else 0
        numbers = np.random.default_rng([own, layer, len(name)])
        state.set(numbers.integers(-2, 3, (rows, SIZE)).astype(np.int32))
        self.states.append(state)
        return state


def carried(program: Program) -> int:
    """How many collectives a Loop's trips start and leave to the next one to wait for."""

    def of(body: tuple[Launch, ...]) -> int:
        places = {
            (launch.ticket, launch.phase): k
            for k, launch in enumerate(body)
            if is_end(launch, "start") or is_end(launch, "wait")
        }
        return sum(
            place > places[ticket, "wait"]
            for (ticket, phase), place in places.items()
            if phase == "start"
        )

    return sum(of(each.body) for each in program.launches if isinstance(each, LoopLaunch))
