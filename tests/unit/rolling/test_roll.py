"""Rolling: which layers become a Loop, and that the Loop computes the same bits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.backends.reference.interpreter import evaluate
from luminal.base import dtypes
from luminal.frontend.tensor import Tensor
from luminal.hlir.attributes import InputAttrs, LoopAttrs, StateAttrs, WeightAttrs
from luminal.hlir.graph import Builder, Graph, Output, topological
from luminal.hlir.ops import Node
from luminal.hlir.substitute import all_nodes
from luminal.hlir.verify import verify
from luminal.rolling.roll import roll
from luminal.shape import view as views
from luminal.shape.expression import const
from tests.long_share import mostly_long
from tests.machines import COSTS

WIDTH = 4
LAYERS = 6

Run = tuple[dict[str, Any], dict[Any, Any]]


def rolled(graph: Graph, **dims: int) -> list[Node]:
    """The graph's Loops after rolling, outermost ones only; the outcome is the same."""
    made = roll(graph, COSTS)
    if made is not graph:
        verify(made)
    rng = np.random.default_rng(0)
    fed: dict[str, Any] = {}
    states: dict[Any, Any] = {}
    for node in all_nodes(graph):
        match node.attrs:
            case InputAttrs(name=name, shape=shape, dtype=dtype):
                drawn = rng.standard_normal([int(n.evaluate(dims)) for n in shape])
                fed[name] = drawn.astype(dtype.numpy)
            case WeightAttrs(parameter=parameter) if not parameter.has_value:
                parameter.set(rng.standard_normal(parameter.shape).astype(np.float32))
            case StateAttrs(state=state):
                states[state] = rng.standard_normal(state.shape).astype(state.dtype.numpy)
    old, new = (run(each, fed, dims, states) for each in (graph, made))
    for name, array in old[0].items():
        assert new[0][name].tobytes() == array.tobytes(), name
    for state, array in old[1].items():
        assert new[1][state].tobytes() == array.tobytes(), state
    return [node for node in made.nodes() if isinstance(node.attrs, LoopAttrs)]


def run(graph: Graph, fed: dict[str, Any], dims: dict[str, int], states: dict[Any, Any]) -> Run:
    for state, array in states.items():
        state.set(array)
    outputs = evaluate(graph, fed, dims)
    return outputs, {state: state.numpy() for state in states}


def trips(loops: Sequence[Node]) -> list[int]:
    return [loop.attrs.trips.value for loop in loops]


def inside(loops: Sequence[Node]) -> list[Node]:
    """The Loops in the bodies of Loops."""
    blocks = [topological(loop.attrs.body.results) for loop in loops]
    return [node for block in blocks for node in block if isinstance(node.attrs, LoopAttrs)]


def linear(cx: lm.Graph, x: Tensor, columns: int = WIDTH, name: str = "") -> Tensor:
    rows = x.shape[-1]
    assert isinstance(rows, int)
    return x @ cx.weight((rows, columns), name=name)


def norm(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt()


def layer(cx: lm.Graph, x: Tensor, inner: int = WIDTH) -> Tensor:
    """Some thirty nodes."""
    hidden = linear(cx, norm(x), inner).tanh()
    return x + linear(cx, hidden)


def stack(cx: lm.Graph, x: Tensor, count: int = LAYERS) -> Tensor:
    for _ in range(count):
        x = layer(cx, x)
    return x


def start(rows: Any = 3) -> tuple[lm.Graph, Tensor]:
    cx = lm.Graph()
    return cx, cx.tensor((rows, WIDTH), name="x")


def test_layers_with_weights_become_one_loop() -> None:
    cx, x = start()
    stack(cx, x).output("y")
    (loop,) = rolled(cx.graph())
    assert loop.attrs.trips.value == LAYERS
    assert loop.attrs.carried == 1
    assert loop.attrs.streams == (LAYERS, LAYERS)
    assert len(loop.args) == 1 + 2 * LAYERS


def test_small_graphs_and_graphs_without_layers_stay_the_same_object() -> None:
    cx, x = start()
    linear(cx, x).output("y")
    graph = cx.graph()
    assert len(graph.nodes()) < 10
    assert roll(graph, COSTS) is graph
    cx, x = start()
    layer(cx, x).output("y")
    graph = cx.graph()
    assert roll(graph, COSTS) is graph
    assert roll(Graph(()), COSTS) == Graph(())


def test_chains_of_pointwise_operations_are_left_to_the_rules() -> None:
    cx, x = start()
    for _ in range(200):
        x = x * 2.0 + 1.0
    x.output("y")
    graph = cx.graph()
    assert roll(graph, COSTS) is graph


def test_a_few_small_products_are_left_to_the_rules() -> None:
    cx, x = start()
    for _ in range(4):
        x = linear(cx, x)
    x.output("y")
    graph = cx.graph()
    assert roll(graph, COSTS) is graph


def cached(cx: lm.Graph, x: Tensor, *states: lm.State) -> Tensor:
    """Writes a row into each State and attends to what it holds."""
    for state in states:
        new = cx.read(state).slice_scatter(linear(cx, x)[:1], 0, 2)
        cx.assign(state, new)
        x = x + (x @ new.mT).softmax(-1) @ new
    return x


@pytest.mark.parametrize("count", [1, 2])
def test_states_per_layer_are_streams_and_assigned_lists(count: int) -> None:
    cx, x = start()
    states = [[lm.State((5, WIDTH)) for _ in range(count)] for _ in range(LAYERS)]
    for own in states:
        x = norm(cached(cx, x, *own))
    x.output("y")
    (loop,) = rolled(cx.graph())
    found = [states_ for states_ in loop.attrs.assigned if states_ is not None]
    assert found == [tuple(own[k] for own in states) for k in range(count)]
    assert not any(type(sink).__name__ == "Assign" for sink in roll(cx.graph(), COSTS).sinks)


def test_a_loop_that_only_updates_states_still_runs() -> None:
    cx, x = start()
    for _ in range(LAYERS):
        x = norm(cached(cx, x, lm.State((5, WIDTH))))
    graph = cx.graph()
    (loop,) = rolled(graph)
    assert loop.attrs.trips.value == LAYERS - 1  # of the last layer only the State is needed
    assert [sink.hidden for sink in roll(graph, COSTS).sinks if isinstance(sink, Output)] in (
        [],
        [True],
    )


def test_a_state_read_in_one_iteration_and_written_in_the_next() -> None:
    cx, x = start()
    states = [lm.State((3, WIDTH)) for _ in range(LAYERS + 1)]
    for k in range(LAYERS):
        cx.assign(states[k], norm(x) * 2.0)
        x = layer(cx, x) + cx.read(states[k + 1])
    x.output("y")
    assert trips(rolled(cx.graph())) == [LAYERS]


def test_a_carried_value_that_the_body_makes_constant() -> None:
    cx, x = start()
    scale = cx.tensor((WIDTH,), name="scale")
    for _ in range(LAYERS):
        x = layer(cx, x) * scale
        scale = cx.constant(np.arange(WIDTH, dtype=np.float32)) + 1.0
    x.output("y")
    (count,) = trips(rolled(cx.graph()))
    assert count >= LAYERS - 1


def test_constants_and_iotas_that_are_separate_nodes() -> None:
    builder = Builder()
    x = builder.input("x", (const(3), const(4)), dtypes.float32)
    for _ in range(8):
        own = Builder()  # so that nothing is shared between layers
        one = own.view(own.constant(np.array(1.5), dtypes.float32), views.expand((), x.shape))
        ramp = own.iota(const(7), x.shape, dtypes.float32)
        for _ in range(4):
            x = own.apply("Div", own.apply("Add", own.apply("Mul", x, one), ramp), one)
        total = own.view(own.sum(x, 1), views.made(x.shape[:1], x.shape, [views.index(0, 3)]))
        x = own.apply("Exp", own.apply("Div", x, total))
    (loop,) = rolled(Graph((Output(x, "y"),)))
    assert loop.attrs.trips.value == 8
    assert len(loop.args) == 1


def test_operand_order_is_kept() -> None:
    cx, x = start()
    for k in range(2 * LAYERS):
        w = layer(cx, x) * cx.weight((WIDTH,))
        x = (w - x if k % 2 else x - w).cos()
    x.output("y")
    assert trips(rolled(cx.graph())) == [LAYERS]


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_a_product_of_an_earlier_iteration(lag: int) -> None:
    cx, x = start()
    inner: list[Tensor] = [x * k for k in range(lag)]
    for _ in range(2 * LAYERS):
        inner.append(linear(cx, norm(x)).tanh())
        x = norm(x + linear(cx, inner[-1]) * inner[-1 - lag])
    x.output("y")
    loop = max(rolled(cx.graph()), key=lambda each: each.attrs.trips.value)
    assert loop.attrs.trips.value >= 2 * LAYERS - lag
    assert loop.attrs.carried >= 1 + lag


def test_custom_kernels_that_differ_only_by_identity() -> None:
    def kernel() -> Callable[[Tensor], Any]:
        def halve(x: Any, out: Any) -> None:
            out[...] = x / 2

        return lm.custom_kernel("halve", halve, results=lambda x: x)

    cx, x = start()
    for _ in range(LAYERS):
        x = layer(cx, kernel()(x))
    x.output("y")
    assert trips(rolled(cx.graph())) == [LAYERS]


def test_custom_kernels_that_differ() -> None:
    def kernel(k: int) -> Callable[[Tensor], Any]:
        def add(x: Any, out: Any) -> None:
            out[...] = x + k

        return lm.custom_kernel("add", add, results=lambda x: x)

    cx, x = start()
    for k in range(LAYERS):
        x = layer(cx, kernel(k)(x))
    x.output("y")
    assert rolled(cx.graph()) == []


def test_an_output_of_every_layer() -> None:
    cx, x = start()
    for k in range(LAYERS):
        x = layer(cx, x)
        x.output(f"y{k}")
        (x.sum() * 2.0).output(f"sum{k}")
    assert trips(rolled(cx.graph())) == [LAYERS]


def test_outputs_of_some_layers() -> None:
    cx, x = start()
    for k in range(LAYERS):
        x = layer(cx, x)
        if k in (1, 4):
            (x + 1.0).output(f"y{k}")
    x.output("y")
    assert trips(rolled(cx.graph())) == [LAYERS]


def test_two_alternating_kinds_of_layer() -> None:
    cx, x = start()
    for _ in range(LAYERS):
        x = layer(cx, x, 8)
        x = layer(cx, x, 2).exp()
    x.output("y")
    (loop,) = rolled(cx.graph())
    assert loop.attrs.trips.value == LAYERS


def test_layers_of_experts() -> None:
    for tokens in (2, 200):  # slot by slot, and in blocks by a Loop of their own
        cx = lm.Graph()
        x = cx.tensor((tokens, WIDTH), name="x")
        for _ in range(LAYERS):
            x = x + nn.MoE(WIDTH, 8, 4, 2)(norm(x))
        x.output("y")
        loops = rolled(cx.graph())
        assert trips(loops) == [LAYERS]


def test_first_and_last_layers_that_differ() -> None:
    cx, x = start()
    x = layer(cx, x, 7).exp()
    x = stack(cx, x)
    layer(cx, x, 5).output("y")
    assert trips(rolled(cx.graph())) == [LAYERS]


def test_a_layer_of_another_shape_stays_outside() -> None:
    cx, x = start()
    for k in range(2 * LAYERS):
        x = layer(cx, x, 9 if k == LAYERS else WIDTH)
    x.output("y")
    assert sorted(trips(rolled(cx.graph()))) == [LAYERS - 1, LAYERS]


def test_dims_may_vary() -> None:
    cx = lm.Graph()
    s = cx.dim("s", 1, 9)
    stack(cx, cx.tensor((s, WIDTH), name="x")).output("y")
    assert trips(rolled(cx.graph(), s=5)) == [LAYERS]


def test_tied_weights_are_invariants() -> None:
    cx, x = start()
    w, table = cx.weight((WIDTH, WIDTH)), cx.weight((WIDTH,))
    turned = (table * 3.0).sin()
    for _ in range(LAYERS):
        x = layer(cx, x @ w) * turned
    x.output("y")
    (loop,) = rolled(cx.graph())
    assert loop.attrs.trips.value == LAYERS
    assert loop.attrs.streams == (LAYERS, LAYERS)
    assert len(loop.args) == 1 + 2 * LAYERS + 2  # w, and sin, which is computed once


def test_weights_shared_by_pairs_of_layers() -> None:
    cx, x = start()
    for _ in range(LAYERS):
        w = cx.weight((WIDTH, WIDTH))
        for _ in range(2):
            x = x + norm(x @ w).tanh().exp()
    x.output("y")
    assert trips(rolled(cx.graph())) == [LAYERS]


def test_what_weights_alone_decide_stays_outside() -> None:
    cx, x = start()
    for _ in range(LAYERS):
        w = cx.weight((WIDTH, WIDTH))
        scaled = w * 2.0 / (w * w).sum(0, keepdim=True).sqrt()
        x = layer(cx, x @ scaled + cx.weight((WIDTH,)) * 3.0)
    x.output("y")
    (loop,) = rolled(cx.graph())
    assert loop.attrs.trips.value == LAYERS
    made = {arg.node.op.name for arg in loop.args}
    assert made == {"Input", "Weight", "Div"}
    assert loop.attrs.streams == 4 * (LAYERS,)  # scaled, the bias and the layer's own two


def test_masks_are_recorded_in_the_body() -> None:
    cx, x = start(7)
    mask = cx.ones((7, 7)).tril()
    for _ in range(LAYERS):
        x = x + (linear(cx, x) @ linear(cx, x).mT).masked_fill(mask == 0, -np.inf).softmax(-1) @ x
    x.output("y")
    (loop,) = rolled(cx.graph())
    assert len(loop.args) == 1 + 2 * LAYERS  # no mask among the operands


def test_stacks_side_by_side_and_one_after_the_other() -> None:
    cx = lm.Graph()
    a, b = (cx.tensor((3, WIDTH), name=name) for name in "ab")
    a, b = stack(cx, a), stack(cx, b, 4)
    y = linear(cx, linear(cx, a * b, 9), WIDTH)
    stack(cx, y, 5).output("y")
    assert sorted(trips(rolled(cx.graph()))) == [4, 5, 6]


def test_layers_that_read_the_end_of_another_stack() -> None:
    cx, x = start()
    memory = stack(cx, x)
    y = cx.tensor((3, WIDTH), name="y0")
    for _ in range(LAYERS):
        y = layer(cx, y)
        y = y + (linear(cx, y) @ linear(cx, memory).mT).softmax(-1) @ linear(cx, memory)
    y.output("y")
    assert trips(rolled(cx.graph())) == [LAYERS, LAYERS]


def test_layers_within_layers() -> None:
    cx, x = start()
    for _ in range(4):
        x = linear(cx, stack(cx, x, 5).exp(), 3).tanh()
        x = linear(cx, x)
    x.output("y")
    loops = rolled(cx.graph())
    assert trips(loops) == [4]
    assert trips(inside(loops)) == [5]


def test_graphs_that_have_loops() -> None:
    cx = lm.Graph()
    xs = cx.tensor((5, 3, WIDTH), name="xs")
    x = xs.sum(0)
    for _ in range(LAYERS):
        _, ys = lm.scan(recurrent(cx.weight((WIDTH, WIDTH))), x, xs)
        x = layer(cx, norm(ys.sum(0)))
    last, _ = lm.scan(lambda c, row: (stack_of(c, row), None), x, xs)
    last.output("y")
    loops = rolled(cx.graph())
    assert trips(loops) == [LAYERS, 5]
    assert trips(inside(loops)) == [5, 8]


@pytest.mark.parametrize("result", [0, 1])
def test_layers_that_begin_with_a_later_result(result: int) -> None:
    """What the first one reads is result 1 of a node, what the others read is another node's."""
    cx, x = start(WIDTH)
    stack(cx, lm.linalg.qr(x)[result]).output("y")
    assert trips(rolled(cx.graph())) == [LAYERS]


def test_layers_that_read_results_in_turn() -> None:
    """Of nodes inside the layers: result 0 of one, result 1 of the next."""
    cx, x = start(WIDTH)
    for number in range(LAYERS):
        both = lm.linalg.qr(layer(cx, x))
        x = both[number % 2]
    x.output("y")
    rolled(cx.graph())


def recurrent(w: Tensor) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return lambda carry, row: ((carry @ w).tanh() + row, carry)


def stack_of(carry: Tensor, row: Tensor) -> Tensor:
    for _ in range(8):
        carry = norm(carry + row).exp()
    return carry


@pytest.mark.long
def test_thousands_of_nodes_roll_in_no_time() -> None:
    seconds: dict[int, float] = {}
    for layers in (80, 320):
        cx, x = start()
        stack(cx, x, layers).output("y")
        graph = cx.graph()
        times = []
        for _ in range(3):  # other processes and the garbage collector disturb some
            began = time.thread_time()
            made = roll(graph, COSTS)
            times.append(time.thread_time() - began)
        seconds[len(graph.nodes())] = min(times)
        assert len(made.nodes()) < len(graph.nodes()) / 8
    few, many = seconds
    assert many > 8_000
    assert seconds[many] < 2 * many / 10_000
    assert seconds[many] < 10 * seconds[few]


# --- random layers --------------------------------------------------------------------------------


def random_block(cx: lm.Graph, rng: np.random.Generator) -> Callable[..., list[Tensor]]:
    """A layer of a few values, drawn once, that can be recorded again and again."""
    steps = [(int(rng.integers(7)), *map(int, rng.integers(0, 50, 2))) for _ in range(14)]
    outer = cx.tensor((3, WIDTH), name=f"shared{rng.integers(1 << 30)}")
    count = int(rng.integers(1, 4))
    picks = [int(k) for k in rng.integers(0, 1 << 30, count)]

    def record(carried: list[Tensor], states: list[lm.State]) -> list[Tensor]:
        values = [*carried, outer]
        for kind, a, b in steps:
            x, y = values[a % len(values)], values[b % len(values)]
            match kind:
                case 0:
                    new = x - y
                case 1:
                    new = linear(cx, x)
                case 2:
                    new = norm(x)
                case 3:
                    new = (x @ y.mT).softmax(-1) @ x
                case 4:
                    new = x * cx.weight((WIDTH,)) + y.flip(0)
                case 5:
                    new = lm.where(y < 0.5, x, cx.constant(np.float32(0.25)).expand((3, WIDTH)))
                case _:
                    states.append(lm.State((3, WIDTH)))
                    new = cx.read(states[-1]) + x
                    cx.assign(states[-1], y + cx.read(states[-1]))
            values.append(new)
        return [norm(values[-1 - pick % (len(values) - 1)]) for pick in picks]

    return record


@pytest.mark.parametrize("seed", mostly_long(range(40), 6))
def test_random_layers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cx, x = start()
    kinds = [random_block(cx, rng) for _ in range(int(rng.integers(1, 3)))]
    values = [x, x * 2.0, x + 1.0]
    states: list[lm.State] = []
    for k in range(int(rng.integers(4, 12))):
        new = kinds[k % len(kinds)](values, states)
        values = [*new, *values[len(new) :]]
        if rng.random() < 0.2:
            values[0].output(f"mid{k}")
    for k, value in enumerate(values):
        value.output(f"y{k}")
    rolled(cx.graph())
