"""A Loop with a State per iteration: streamed in, and a y bound to them."""

import numpy as np

from luminal.backends import reference
from luminal.backends.cpu import backend
from luminal.base import dtypes
from luminal.compiler.compile import lower_to_program
from luminal.hlir.attributes import Body
from luminal.hlir.graph import Builder, Graph, Output
from luminal.memory.state import State
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.shape.expression import const


def program(*, take_ys: bool) -> tuple[Graph, tuple[State, ...]]:
    """h = h + state_i, state_i = h * state_i, four times."""
    outer, inner = Builder(), Builder()
    states = tuple(State((3,), init=float(i + 1)) for i in range(4))
    x = outer.input("x", (const(3),), dtypes.float32)
    h = inner.input("arg0", (const(3),), dtypes.float32)
    state = inner.input("arg1", (const(3),), dtypes.float32)
    after = inner.apply("Add", h, state)
    body = Body((h.node, state.node), (after, inner.apply("Mul", after, state)))
    streams = [[outer.state(s) for s in states]]
    final, ys = outer.loop(const(4), body, [x], streams, [], (states,))
    sinks = (Output(final, "h"), Output(ys, "ys")) if take_ys else (Output(final, "h"),)
    return Graph(sinks), states


def test_each_iteration_assigns_its_own_state() -> None:
    x = np.arange(3, dtype=np.float32)
    for take_ys in (False, True):
        expected_graph, expected_states = program(take_ys=take_ys)
        expected = reference.evaluate(expected_graph, {"x": x})
        graph, states = program(take_ys=take_ys)
        host = backend.current()
        runner = host.runner(lower_to_program(graph, host))
        results = Executable(graph, [Variant({}, runner)], {}, {})({"x": x})
        for name in expected:
            np.testing.assert_array_equal(results[name], expected[name])
        for own, other in zip(states, expected_states, strict=True):
            np.testing.assert_array_equal(own.numpy(), other.numpy())
