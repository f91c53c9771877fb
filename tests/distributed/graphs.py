"""Random graphs with Collectives, whose values are small whole numbers: exact in every dtype."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.records import dataclass
from luminal.hlir.attributes import CollectiveAttrs
from luminal.hlir.graph import Assign, Builder, Graph, Output
from luminal.hlir.ops import NUMBERS, Value
from luminal.memory.state import State
from luminal.shape.expression import Expression, const, symbol
from luminal.shape.view import index

KINDS = ("all_gather", "all_to_all", "all_reduce", "reduce_scatter", "permute")
DTYPES = (
    dtypes.float32, dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16, dtypes.int8,
    dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.bool_,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Drawn:
    """A graph with what a rank gives it."""

    graph: Graph
    states: tuple[State, ...]
    inputs: dict[str, Any]
    dims: dict[str, int]


def collective(
    builder: Builder, kind: str, x: Value, ranks: int, *, axis: str = "data",
    reduction: str = "Sum", pairs: Sequence[tuple[int, int]] = (), label: str = "",
) -> Value:  # fmt: skip
    """The Collective of a value."""
    by = reduction if kind in ("all_reduce", "reduce_scatter") else ""
    attrs = CollectiveAttrs(kind, axis, ranks, by, tuple(pairs), label=label)
    return builder.make("Collective", (x,), attrs).value


class Draw:
    """Draws one graph; equal seeds draw equal graphs on all ranks, each with States of its own."""

    def __init__(self, seed: int, rank: int, ranks: int) -> None:
        self.rng = random.Random(seed)
        self.rank, self.ranks = rank, ranks
        self.builder = Builder()
        self.place = symbol("rank_data", 0, ranks - 1)
        self.length = (
            symbol("s", 0, 8) if self.rng.random() < 0.4 else const(self.rng.choice((0, 1, 3, 5)))
        )
        self.size = self.rng.choice((0, 1, 4, 7)) if not self.length.is_const else self.length.value
        self.values: list[Value] = []
        self.inputs: dict[str, Any] = {}
        self.states: list[State] = []

    def drawn(self) -> Drawn:
        """The graph, with some of its values for sinks."""
        for number in range(self.rng.randint(1, 3)):
            self.input(number)
        for number in range(self.rng.randint(0, 2)):
            self.state(number)
        self.values.append(self.iota())
        for _ in range(self.rng.randint(3, 14)):
            self.step()
        chosen = dict.fromkeys([*self.values[-3:], *self.rng.sample(self.values, 2)])
        sinks: list[Any] = [Output(value, f"y{k}") for k, value in enumerate(chosen)]
        for state in self.states:
            fits = [v for v in self.values if v.shape == state.shape and v.dtype is state.dtype]
            if fits:
                sinks.append(Assign(value=self.rng.choice(fits), state=state))
        dims = () if self.length.is_const else (self.length,)
        graph = Graph(tuple(sinks), (*dims, self.place))
        return Drawn(graph, tuple(self.states), self.inputs, {} if not dims else {"s": self.size})

    # --- leaves

    def numbers(self, shape: tuple[int, ...], dtype: DType) -> Any:
        """A rank's own numbers; drawn apart, so that ranks draw equal graphs."""
        seed = [self.rank, len(self.inputs), len(self.states)]
        values = np.random.default_rng(seed).integers(0, 3, shape)
        return values.astype(dtype.numpy)

    def input(self, number: int) -> None:
        dtype, parts = self.rng.choice(DTYPES), self.rng.random() < 0.6
        shape = (const(self.ranks), self.length) if parts else (self.length,)
        sizes = (self.ranks, self.size) if parts else (self.size,)
        self.inputs[f"x{number}"] = self.numbers(sizes, dtype)
        self.values.append(self.builder.input(f"x{number}", shape, dtype))

    def state(self, number: int) -> None:
        dtype = self.rng.choice(DTYPES)
        state = State((self.ranks, 3), dtype, name=f"state{number}")
        state.set(self.numbers((self.ranks, 3), dtype))
        self.states.append(state)
        self.values.append(self.builder.state(state))

    def iota(self) -> Value:
        """Positions along an axis that is cut: a rank's own begin at its place."""
        where: Expression = self.place * 3 + index(1, const(3))
        return self.builder.iota(where, (const(self.ranks), const(3)), dtypes.int64)

    # --- operations

    def step(self) -> None:
        x = self.rng.choice(self.values[-5:])
        choices = [self.permuted, *([self.gathered] if x.shape else [])]
        if x.shape and x.shape[0].exact_div(self.ranks) is not None:
            choices += [self.exchanged, self.exchanged]
        if x.dtype in NUMBERS:
            choices += [self.added, self.reduced, self.reduced]
            choices += [self.summed] if len(x.shape) > 1 else []
        if len(x.shape) < 4:
            self.values.append(self.rng.choice(choices)(x))

    def named(self) -> str:
        return f"value {len(self.values)}"

    def gathered(self, x: Value) -> Value:
        return collective(self.builder, "all_gather", x, self.ranks, label=self.named())

    def permuted(self, x: Value) -> Value:
        sources = self.rng.sample(range(self.ranks), self.rng.randint(1, self.ranks))
        targets = self.rng.sample(range(self.ranks), len(sources))
        pairs = [*zip(sources, targets, strict=True)]
        return collective(self.builder, "permute", x, self.ranks, pairs=pairs, label=self.named())

    def exchanged(self, x: Value) -> Value:
        kind = self.rng.choice(("all_to_all", "reduce_scatter"))
        if x.dtype not in NUMBERS:
            kind = "all_to_all"
        by = self.rng.choice(("Sum", "Max"))
        return collective(self.builder, kind, x, self.ranks, reduction=by, label=self.named())

    def reduced(self, x: Value) -> Value:
        by = self.rng.choice(("Sum", "Max"))
        return collective(
            self.builder, "all_reduce", x, self.ranks, reduction=by, label=self.named()
        )

    def added(self, x: Value) -> Value:
        fits = [v for v in self.values if v.shape == x.shape and v.dtype is x.dtype]
        name = self.rng.choice(("Add", "Add", "Maximum"))
        return self.builder.apply(name, x, self.rng.choice(fits))

    def summed(self, x: Value) -> Value:
        return self.builder.max(x, 0) if self.rng.random() < 0.5 else self.builder.sum(x, 0)
