"""Graphs under construction for the tests of genomes, and how their inputs are drawn.

What is compared must be well-conditioned: a result is of use where right programs, which round in
other places, agree far better than wrong ones do. So weights are scaled by how much they sum, and
branches beside a residual are small; choices (of experts) are far from ties.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import luminal as lm
from luminal import nn
from luminal.hlir.attributes import StateAttrs
from luminal.hlir.graph import Assign
from luminal.hlir.substitute import all_nodes
from luminal.memory.state import State
from tests.fuzz.graphs import Case

Array = np.ndarray[Any, Any]
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 3e38)
APART = 0.05  # of the scores of an expert that is taken and one that is not
BRANCH = 0.03  # scale of what is added to a residual: errors grow little from layer to layer


@dataclass
class Draft:
    """A graph under construction, and how its inputs are drawn."""

    sizes: tuple[dict[str, int], ...] = ({},)  # values of the dims, one Case each
    cx: lm.Graph = field(default_factory=lm.Graph)
    draws: dict[str, tuple[Any, Callable[[np.random.Generator, tuple[int, ...]], Array]]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        nn.init.manual_seed(0)

    def given(
        self,
        *shape: Any,
        dtype: Any = lm.float32,
        below: int = 9,
        wild: float = 0,
        settle: Callable[[Array], Array] = lambda array: array,
    ) -> Any:
        """An input: floats are normal (a share of them `wild`), integers in [0, below); `settle`
        has the last word.
        """

        def draw(rng: np.random.Generator, sizes: tuple[int, ...]) -> Array:
            if not dtype.is_float:
                return np.asarray(rng.integers(0, below, sizes)).astype(dtype.numpy)
            values = rng.normal(size=sizes)
            strange = rng.choice(SPECIAL, sizes)
            mixed = np.where(rng.random(sizes) < wild, strange, values)
            return settle(np.asarray(mixed).astype(dtype.numpy))

        name = f"x{len(self.draws)}"
        self.draws[name] = tuple(shape), draw
        return self.cx.tensor(tuple(shape), dtype, name=name)

    def weight(self, *shape: int, dtype: Any = lm.float32, sums: int = 1) -> Any:
        """Normal, for sums over so many of its elements."""
        weight = self.cx.weight(shape, dtype)
        values = np.random.default_rng(sum(shape)).normal(size=shape) / np.sqrt(sums)
        weight.set(values.astype(dtype.numpy))
        return weight

    def dense(self, x: Any, width: int) -> Any:
        """x times a weight."""
        into = x.shape[-1]
        return x @ self.weight(into, width, dtype=x.dtype, sums=into)

    def cases(self, *results: Any) -> list[Case]:
        """The graph of the results at every value of the dims; States hold random values."""
        for k, result in enumerate(results):
            result.output(f"y{k}")
        graph = self.cx.graph()
        rng = np.random.default_rng(0)
        states = {s: _first(s, rng) for s in _states(graph)}
        found = []
        for dims in self.sizes:
            inputs: dict[str, Array] = {}
            for name, (shape, draw) in self.draws.items():
                sizes = tuple(n if isinstance(n, int) else n.evaluate(dims) for n in shape)
                inputs[name] = draw(rng, sizes)
            found.append(Case(graph, inputs, dims, states))
        return found


def _states(graph: Any) -> list[State]:
    sinks = [sink.state for sink in graph.sinks if isinstance(sink, Assign)]
    read = [n.attrs.state for n in all_nodes(graph) if isinstance(n.attrs, StateAttrs)]
    return list(dict.fromkeys([*sinks, *read]))


def _first(state: State, rng: np.random.Generator) -> Array:
    """Random values, except where a State holds more than zeros."""
    now = state.numpy()
    if now.any() or not state.dtype.is_float:
        return now
    return np.asarray(np.abs(rng.normal(size=state.shape))).astype(state.dtype.numpy)


def tamed(model: Any) -> Any:
    """The model with small branches beside its residuals."""
    values = model.state_dict()
    for name in values:
        if "o_proj" in name or "down_proj" in name:
            values[name] = (values[name].astype(np.float64) * BRANCH).astype(values[name].dtype)
    model.load_state_dict(values)
    return model


def decided(moe: nn.MoE, x: Array) -> Array:
    """Tokens x with those drawn anew whose choice of experts is near a tie."""
    rng = np.random.default_rng(1)
    gate, taken = moe.state_dict()["gate.weight"].astype(np.float64), moe.gate.top_k
    found = x.copy()
    for row in found:
        while True:
            scores = np.sort(gate @ row)[::-1]
            if scores[taken - 1] - scores[taken] > APART:
                break
            row[...] = rng.normal(size=row.shape)
    return found
