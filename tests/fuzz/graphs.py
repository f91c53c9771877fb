"""Random HLIR graphs with random inputs, for every test that compares two ways to run one.

`random_case(seed)` and the hypothesis strategy `cases()` give the same kind of Case. Values with
many unstable points (see `backends.reference.bounds`) are not used, so a Case can be compared.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from luminal.backends.reference import evaluate_with_bounds
from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.hlir.attributes import InputAttrs, LoopAttrs, Shape, StateAttrs
from luminal.hlir.graph import Assign, Builder, Graph, Output, Sink, topological
from luminal.hlir.ops import Node, Value
from luminal.hlir.semantics import extents
from luminal.hlir.types import TensorType
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.shape import view as views
from luminal.shape.expression import Expression, Symbol, const, symbol

Array = np.ndarray[Any, Any]

MAX_DEPTH = 12
MAX_POINTS = 2048  # of one value: a case runs in milliseconds
MAX_UNSTABLE = 0.04  # share of unstable points of a value that is kept
CACHE = 8  # extent of the States that are written at `past`
EXTENTS = (0, *(1, 2, 3, 4, 5, 7) * 4, 6, 8, 8)
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, 1e-40, 3e38)


@dataclass(frozen=True)
class Case:
    """A graph, its inputs by name, its dims' values, and its States' values before a run."""

    graph: Graph
    inputs: dict[str, Array]
    dims: dict[str, int]
    states: dict[State, Array]

    def reset(self) -> None:
        """Gives every State its first value again."""
        for state, value in self.states.items():
            state.set(value)


def random_case(seed: int) -> Case:
    """The Case of a seed: the same one in every process."""
    return build(random.Random(seed))


def cases() -> st.SearchStrategy[Case]:
    """Cases that hypothesis draws and shrinks."""
    return st.randoms(use_true_random=False).map(build)


def build(rng: random.Random) -> Case:
    """A Case of a few random steps (`steps.STEPS`)."""
    from tests.fuzz.steps import STEPS  # the steps are written in terms of Growth

    growth = Growth(rng)
    for _ in range(rng.randint(1, 2)):
        growth.keep(growth.leaf(growth.any_type()))
    for _ in range(rng.randint(2, 14)):
        step = rng.choice(STEPS)
        for value in step(growth):
            growth.keep(value)
    return growth.case()


def depth(value: Value) -> int:
    """Nodes on the longest path to a leaf."""
    depths: dict[Node, int] = {}
    for node in topological([value]):
        depths[node] = 1 + max((depths[arg.node] for arg in node.args), default=0)
    return depths[value.node]


@dataclass
class Growth:
    """A graph while it grows: its Builder, and the values that steps may use."""

    rng: random.Random
    builder: Builder = field(default_factory=Builder)
    inputs: dict[str, Array] = field(default_factory=dict)
    states: dict[State, Array] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    assigns: list[Assign] = field(default_factory=list)
    dims: dict[Symbol, int] = field(default_factory=dict)
    requirements: list[Expression] = field(default_factory=list)
    weights: int = 0
    looped: set[State] = field(default_factory=set)  # assigned by Loops

    def __post_init__(self) -> None:
        self.arrays = np.random.default_rng(self.rng.getrandbits(32))
        if self.rng.random() < 0.6:
            self.dims[symbol("s", 1, 6)] = self.rng.randint(1, 6)
        if self.rng.random() < 0.3:
            self.dims[symbol("t", 1, 4)] = self.rng.randint(1, 4)
        if self.rng.random() < 0.2:
            self.dims[symbol("z", 0, 3)] = self.rng.choice([0, 0, 1, 2, 3])

    # --- the graph so far

    @property
    def env(self) -> dict[str, int]:
        return {dim.name: value for dim, value in self.dims.items()}

    def graph(self, *sinks: Sink) -> Graph:
        return Graph(sinks, tuple(self.dims), tuple(self.requirements))

    def keep(self, value: Value) -> bool:
        """Adds a value to those that steps use, if it is new, small, shallow and stable enough."""
        too_many = int(np.prod(extents(value.shape, self.env), dtype=np.int64)) > MAX_POINTS
        if value in self.values or too_many or depth(value) > MAX_DEPTH:
            return False
        probe = self.graph(Output(value, "probe"))
        unstable = evaluate_with_bounds(probe, self.inputs, self.env).outputs["probe"].unstable
        if unstable.size and float(np.mean(unstable)) > MAX_UNSTABLE:
            return False
        self.values.append(value)
        return True

    def case(self) -> Case:
        """The finished Case: the last values and some others are outputs."""
        last = self.values[-3:]
        others = [value for value in self.values[:-3] if self.rng.random() < 0.1]
        outputs = [Output(value, f"out{k}") for k, value in enumerate([*last, *others])]
        graph = self.graph(*outputs, *self.assigns)
        leaves = [node.attrs for node in graph.nodes()]
        names = [leaf.name for leaf in leaves if isinstance(leaf, InputAttrs)]
        states = {leaf.state for leaf in leaves if isinstance(leaf, StateAttrs)}
        states |= {sink.state for sink in self.assigns}
        loops = [leaf.assigned for leaf in leaves if isinstance(leaf, LoopAttrs)]
        states |= {state for lists in loops for each in lists for state in each or ()}
        return Case(
            graph,
            {name: self.inputs[name] for name in names},
            self.env,
            {state: value for state, value in self.states.items() if state in states},
        )

    # --- drawing

    def pick(self, *wanted: DType) -> Value:
        """A value of one of these dtypes (any if none is named), mostly a recent one."""
        fits = [v for v in self.values if not wanted or v.dtype in wanted]
        if fits and self.rng.random() < 0.9:
            return self.rng.choice(fits[-4:] if self.rng.random() < 0.7 else fits)
        dtype = self.rng.choice(wanted or dtypes.ALL)
        return self.leaf(TensorType(self.any_shape(), dtype))

    def extent(self) -> Expression:
        if self.dims and self.rng.random() < 0.4:
            dim = self.rng.choice(list(self.dims))
            return self.rng.choice([dim, dim, dim + 1, 2 * dim])
        return const(self.rng.choice(EXTENTS))

    def any_shape(self, *ranks: int) -> Shape:
        rank = self.rng.choice(ranks or (0, 1, 1, 2, 2, 2, 3, 3))
        return tuple(self.extent() for _ in range(rank))

    def any_type(self) -> TensorType:
        usual = [dtypes.float32] * 8 + [dtypes.int32, dtypes.int64]
        return TensorType(self.any_shape(), self.rng.choice([*usual, *dtypes.ALL]))

    def leaf(self, type_: TensorType) -> Value:
        """An input, literal, iota, State or Weight of this type."""
        kinds = ("input", "input", "input", "broadcast", "literal", "iota", "state", "weight")
        kind = self.rng.choice(kinds)
        literal = all(extent.is_const for extent in type_.shape)
        if kind == "broadcast":
            return self.broadcast(type_)
        if kind == "iota":
            return self.iota(type_)
        if kind == "literal" and literal:
            return self.builder.constant(
                self.array(extents(type_.shape, {}), type_.dtype), type_.dtype
            )
        if kind == "state" and literal:
            return self.state(type_)
        if kind == "weight" and literal:
            return self.weight(type_)
        return self.input(type_)

    def input(self, type_: TensorType) -> Value:
        name = f"in{len(self.inputs)}"
        self.inputs[name] = self.array(extents(type_.shape, self.env), type_.dtype)
        return self.builder.input(name, *type_)

    def broadcast(self, type_: TensorType) -> Value:
        """A smaller input stretched to the type."""
        start = self.rng.randint(0, len(type_.shape))
        small = [n if self.rng.random() < 0.5 else const(1) for n in type_.shape[start:]]
        source = self.input(TensorType(tuple(small), type_.dtype))
        return self.builder.view(source, views.expand(source.shape, type_.shape))

    def iota(self, type_: TensorType) -> Value:
        expr: Expression = const(self.rng.randint(-2, 2))
        for k, extent in enumerate(type_.shape):
            expr = expr + self.rng.randint(-2, 2) * views.index(k, extent)
        return self.builder.iota(expr, *type_)

    def state(self, type_: TensorType) -> Value:
        """A new State, which is also assigned by some step or keeps its value."""
        shape = extents(type_.shape, {})
        state = State(
            shape, type_.dtype, self.array(shape, type_.dtype), f"state{len(self.states)}"
        )
        self.states[state] = state.numpy()
        return self.builder.state(state)

    def weight(self, type_: TensorType) -> Value:
        """A new Parameter that has its value."""
        shape = extents(type_.shape, {})
        parameter = Parameter(shape, type_.dtype, f"weight{self.weights}")
        parameter.set(self.array(shape, type_.dtype))
        self.weights += 1
        return self.builder.weight(parameter.name, parameter)

    def like(self, type_: TensorType) -> Value:
        """A value of exactly this type: one there is, or a new leaf."""
        fits = [value for value in self.values if value.type == type_]
        if fits and self.rng.random() < 0.6:
            return self.rng.choice(fits)
        return self.leaf(type_)

    def array(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """Random values; floats sometimes with NaN, infinities and zeros among them."""
        if dtype.kind == "bool":
            return np.asarray(self.arrays.random(shape) < 0.5)
        if dtype.is_int:
            limits = np.iinfo(dtype.numpy)
            wide = self.rng.random() < 0.2
            lo, hi = (limits.min, limits.max) if wide else (max(-3, limits.min), 9)
            return self.arrays.integers(lo, hi, shape, dtype.numpy, endpoint=True)
        values = np.asarray(self.arrays.normal(0, 2, shape))
        if self.rng.random() < 0.15:
            special = self.arrays.choice(SPECIAL, shape)
            values = np.where(self.arrays.random(shape) < 0.2, special, values)
        with np.errstate(over="ignore"):
            return np.asarray(values.astype(dtype.numpy))

    def axis(self, value: Value) -> int:
        return self.rng.randrange(len(value.shape))

    def past(self, length: Expression) -> Symbol:
        """The dim `past` with `past + length <= CACHE` as a requirement; lengths are at most 6."""
        dim = symbol("past", 0, CACHE)
        if dim not in self.dims:
            self.dims[dim] = self.rng.randint(0, CACHE - 6)
        requirement = dim + length <= CACHE
        if requirement not in self.requirements:
            self.requirements.append(requirement)
        return dim
