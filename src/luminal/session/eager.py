"""The default graph, and PyTorch's training loop on it as it stands.

    loss = criterion(model(lm.tensor(x)), lm.tensor(y))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

What `lm.tensor`, modules and `backward` do is recorded, and `step` compiles the update once and
runs it at once: a loop that records the same lines over new data finds its program by its
structure. A value keeps to the time when it was recorded. So a Parameter that is about to get
another value leaves the graph: what was recorded of it reads the value that it had, and what is
recorded from then on reads a Weight of its own. What nobody can reach any more is forgotten with
each step, so a long loop takes no more memory than a short one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import GraphError, InputError
from luminal.base.generator import draw
from luminal.frontend.graph import new_builder, recording_into
from luminal.frontend.pointwise.derivatives import Derivative
from luminal.frontend.random.keyed import no_key
from luminal.frontend.tensor import Tensor
from luminal.hlir import graph as hlir
from luminal.hlir.attributes import InputAttrs, WeightAttrs
from luminal.hlir.graph import Assign, Builder, topological
from luminal.hlir.ops import Node, Value
from luminal.memory.as_tensor import outside, recorder
from luminal.memory.parameter import Parameter
from luminal.memory.state import Assignable, State
from luminal.runtime.arrays import Array
from luminal.runtime.results import Results
from luminal.session.graph import Graph

SWEPT = 512  # leaves at which those that nobody holds are looked for


def _uniform(shape: Sequence[int], low: float = 0.0, to: float = 1.0) -> Array:
    return draw(lambda rng: rng.uniform(low, to, shape))


def _normal(shape: Sequence[int], mean: float = 0.0, std: float = 1.0) -> Array:
    return draw(lambda rng: rng.normal(mean, std, shape))


def _exponential(shape: Sequence[int], lambd: float = 1.0) -> Array:
    return draw(lambda rng: rng.exponential(1 / lambd, shape))


class DefaultGraph(Graph):
    """The graph of `lm.tensor` and the like, whose values stay what they were when recorded."""

    is_eager = True
    draws: ClassVar[Mapping[str, Callable[..., Array]]] = {
        "uniform_": _uniform,
        "normal_": _normal,
        "exponential_": _exponential,
    }
    """What fills a Parameter or a State with random numbers of the default generator."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._past: WeakKeyDictionary[Node, Array] = WeakKeyDictionary()
        self._computed: WeakKeyDictionary[Node, dict[int, Array]] = WeakKeyDictionary()
        self._states: dict[State, Value] = {}
        self._wanted: list[Value] = []
        self._stale: set[Any] = set()
        self._keys: set[str] = set()
        self._has_past = False  # is anything older than the Builder?
        self._next_sweep = SWEPT

    # --- what is read here

    def tensor(
        self, shape_or_data: Any, dtype: Any = None, name: str | None = None, *, copy: bool = True
    ) -> Tensor:
        """An Input, as of any graph; of a long loop those that nobody holds any more are forgotten
        from time to time.
        """
        if len(self.leaves) >= self._next_sweep:
            self._sweep()
            self._next_sweep = max(SWEPT, 2 * len(self.leaves))
        return super().tensor(shape_or_data, dtype, name, copy=copy)

    def leaf_of(self, held: Assignable, name: str | None = None) -> Tensor:
        """The Weight of a Parameter, as its memory lies, until that is set or assigned; of a State
        the value until then, or that it is assigned here.
        """
        if isinstance(held, State) and held in self._assigned:
            return self.wrap(self._assigned[held].value)
        held.read_by(self)
        leaf = super().leaf_of(held, name)
        if isinstance(held, State):
            self._states[held] = leaf.value
        return leaf

    def changes(self, held: Assignable) -> None:
        """Is called just before what is read here gets another value: what is recorded keeps the
        one that it has.
        """
        self._leave(held, self._memory_of(held))

    def _memory_of(self, held: Assignable) -> Array | None:
        """The value as it lies, if it is read here and there is one."""
        if isinstance(held, State):
            return held.memory_now() if held in self._states else None
        return held.memory_now() if held in self._weights and held.has_value else None

    def _leave(self, held: Assignable, array: Array | None) -> None:
        if array is None:
            return
        value = self._states.pop(held) if isinstance(held, State) else self._weights.pop(held)
        self.leaves.pop(getattr(value.node.attrs, "name", ""), None)
        self._past[value.node] = array
        self._packed.clear()
        self._codes.clear()
        self._begin()

    def _begin(self) -> None:
        """Equal lines are recorded anew from here on, as they may read other values."""
        self.builder, self._has_past = new_builder(), True

    def upcoming(self, held: Assignable) -> Array | None:
        """What a State is assigned by what is recorded so far, where all inputs of that are set."""
        sink = self._assigned.get(held)
        if sink is None or not isinstance(held, State):
            return None
        if (array := self.known(sink.value)) is None:
            # All at once: a model has dozens, which share what they are computed from.
            values = [s.value for s in self._assigned.values() if isinstance(s.state, State)]
            try:
                self._at_hand(values, self._arrays(values))
            except InputError:  # a graph that is still to be compiled
                return None
            array = self.known(sink.value)
        return array if array is None else held.in_order(array.copy())

    # --- what is known, and computed

    def known(self, value: Value) -> Array | None:
        """The elements of `value` where they are at hand: also of the time before a step."""
        if value.node in self._past:
            return self._past[value.node]
        computed = self._computed.get(value.node, {}).get(value.index)
        return super().known(value) if computed is None else computed

    def computed(self, value: Value) -> Array:
        """`value` of what its inputs, Parameters and States were when it was recorded."""
        return self._arrays([value])[0]

    def _arrays(self, values: Sequence[Value]) -> list[Array]:
        now, inputs = self._of_the_past(values)
        return self._on_demand.arrays(self, now, inputs_set=inputs)

    def _at_hand(self, values: Sequence[Value], arrays: Sequence[Array]) -> None:
        """Has what was computed at hand for as long as somebody holds it."""
        for value, array in zip(values, arrays, strict=True):
            self._computed.setdefault(value.node, {})[value.index] = array

    def _of_the_past(self, values: Sequence[Value]) -> tuple[list[Value], Mapping[str, Array]]:
        """The values, of inputs where they read what has another value by now; and all inputs."""
        if not self._has_past:
            return list(values), self.values
        # Lines that were recorded before and after have nodes of their own, which are one here.
        builder, now, inputs = Builder(), dict[Node, Node](), dict(self.values)
        for node in topological(values):
            if node in self._past:
                name = f"past {len(inputs)}"
                inputs[name] = self._past[node]
                kind = node.types[0]
                now[node] = builder.input(name, kind.shape, kind.dtype).node
            else:
                args = tuple([Value(now[arg.node], arg.index) for arg in node.args])
                new = Node(node.op, args, node.attrs, node.types, node.recorded)
                now[node] = builder.keep(new)
        return [Value(now[value.node], value.index) for value in values], inputs

    # --- a training loop

    def differentiable(self) -> list[Value]:
        """The inputs and weights that `backward` finds gradients of: also of Parameters that have
        another value by now, at the one that they had.
        """
        past = [n.value for n in list(self._past) if isinstance(n.attrs, WeightAttrs)]
        return [*super().differentiable(), *past]

    def backward(self, loss: Tensor, gradient: Tensor | None = None) -> None:
        """Adds gradients of `loss` to those of inputs and weights; see `Tensor.backward`."""
        for key in self._stale & self.gradients.keys():  # kept since a step: as numbers
            self.gradients[key] = self.tensor(self.gradients[key].numpy())
        self._stale.clear()
        super().backward(loss, gradient)
        self.wanted(loss)

    def wanted(self, value: Tensor) -> None:
        """Has the next step compute a value too, as it is likely to be read."""
        self._wanted.append(value.value)

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Runs at its end what is assigned so far, and in it: a step. What is `wanted`, as losses
        are, is computed in that run. Where anything fails nothing is assigned.
        """
        before, assigned = list(self.sinks), dict(self._assigned)
        read = {*self._weights, *self._states}
        try:
            yield
            assigns = list(self._assigned.values())
            losses = list(dict.fromkeys(self._wanted))
            now, inputs = self._of_the_past([*losses, *(sink.value for sink in assigns)])
            sinks = [Assign(s.state, v) for s, v in zip(assigns, now[len(losses) :], strict=True)]
            old = {s.state: self._memory_of(s.state) for s in assigns if s.state in read}
            arrays = self._on_demand.arrays(self, now[: len(losses)], sinks, inputs)
        except BaseException:
            self.sinks, self._assigned, self._wanted = before, assigned, []
            raise
        self._at_hand(losses, arrays)
        for held, before_it in old.items():
            self._leave(held, before_it)
        self._forget()

    def _forget(self) -> None:
        """After a step: keeps of what was recorded what a user can still reach."""
        self.sinks = [sink for sink in self.sinks if not isinstance(sink, Assign)]
        self._assigned, self._wanted = {}, []
        # Of inputs gradients would hold all that was recorded of them.
        self.gradients = {p: g for p, g in self.gradients.items() if isinstance(p, Parameter)}
        self._stale = set(self.gradients)
        self._executable, self.results, self.parts = None, {}, {}
        self.pulled, self.cotangents, self._states = {}, set(), {}
        self._sweep()

    def _sweep(self) -> None:
        """Forgets inputs and derivatives that nobody else holds."""
        self._begin()
        # Whether anything else holds a node is what a weak reference tells once ours is gone. The
        # newest first: a derivative holds what it leads to.
        kept: list[tuple[Value, Derivative]] = []
        while self.derivatives:
            value, derivative = self.derivatives.popitem()
            node, index = weakref.ref(value.node), value.index
            del value
            if (there := node()) is not None:
                kept.append((Value(there, index), derivative))
            del derivative, there
        self.derivatives = dict(reversed(kept))
        for name in [n for n, v in self.leaves.items() if isinstance(v.node.attrs, InputAttrs)]:
            node = weakref.ref(self.leaves.pop(name).node)
            if (there := node()) is not None:
                self.leaves[name] = there.value
            else:
                self.values.pop(name, None)
                self._keys.discard(name)
            del there

    # --- random keys

    def next_key(self, what: str) -> Tensor:
        """A key of the default generator (`lm.manual_seed`), for what draws without one."""
        words = draw(lambda rng: rng.integers(0, 1 << 32, 2, np.uint32))
        key = self.tensor(words, dtypes.uint32, copy=False)
        self._keys.add(key.value.node.attrs.name)
        return key

    def graph(self) -> hlir.Graph:
        """The graph recorded so far, frozen. Raises GraphError if nothing is output or assigned,
        and for a key that was drawn when it was recorded: all runs would have that one.
        """
        frozen = super().graph()
        for node in frozen.by_op().get("Input", ()) if self._keys else ():
            if node.attrs.name in self._keys:
                raise GraphError(no_key(self.name))
        return frozen


_default: ContextVar[DefaultGraph | None] = ContextVar("luminal_default_graph", default=None)


def default_graph() -> Graph:
    """The graph of this context that `lm.tensor`, `lm.arange`, ... record into: inside of
    `recording` that one, in a module's forward that of its arguments.
    """
    current: Graph | None = recorder.get()
    return eager_graph() if current is None else current


def eager_graph() -> DefaultGraph:
    """The default graph where nothing else is recorded."""
    graph = _default.get()
    if graph is None:
        graph = DefaultGraph("default graph")
        _default.set(graph)
    return graph


outside.graph = eager_graph


@contextmanager
def recording(graph: Graph) -> Iterator[Graph]:
    """Makes `graph` the default graph inside the block; Parameters are Tensors of it there."""
    with recording_into(graph):
        yield graph


def reset() -> None:
    """Starts a new default graph; Tensors of the old one stay valid."""
    _default.set(None)


def execute(dims: Mapping[str, int] | None = None) -> Results:
    """Runs the default graph (see `Graph.execute`)."""
    return default_graph().execute(dims)
