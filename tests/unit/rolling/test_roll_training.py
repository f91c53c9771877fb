"""Rolling a training step: a Loop of layers, one of gradients, one for each kind of update."""

from __future__ import annotations

import copy
from itertools import product

import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.backends.reference.interpreter import evaluate
from luminal.hlir.attributes import LoopAttrs
from luminal.hlir.graph import Graph
from luminal.hlir.ops import Node
from luminal.hlir.prune import pruned
from luminal.hlir.verify import verify
from luminal.models.llama import Llama, LlamaConfig
from luminal.rolling.roll import roll
from tests.close import close, close_each
from tests.long_share import long_rows, mostly_long
from tests.machines import COSTS

F = nn.functional
VOCABULARY, LENGTH, BATCH = 16, 6, 2


def decoder(layers: int) -> Llama:
    nn.init.manual_seed(0)
    return Llama(LlamaConfig(8, 12, layers, 2, 1, 4, VOCABULARY, LENGTH)).train()


def step_of(model: Llama, clip_norm: float | None = None, rate: float | None = None) -> lm.Graph:
    """A step of AdamW on next-token prediction; without a rate that is an input, too."""
    cx = lm.Graph()
    ids, wanted = (cx.tensor((BATCH, LENGTH), np.int64, name) for name in ("ids", "wanted"))
    loss = F.cross_entropy(model(ids).reshape(-1, VOCABULARY), wanted.reshape(-1)).output("loss")
    given = cx.tensor((), name="lr") if rate is None else rate
    optimizer = lm.optim.AdamW(model.parameters(), lr=given, weight_decay=0.01)
    optimizer.step(loss, clip_norm=clip_norm)
    return cx


def fed() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, VOCABULARY, (BATCH, LENGTH))
    return {"ids": ids, "wanted": np.roll(ids, -1, 1), "lr": np.float32(0.01)}


def loops(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes() if isinstance(node.attrs, LoopAttrs)]


@pytest.mark.parametrize("clip_norm", mostly_long([1.0, None], 1), ids=["clipped", "plain"])
def test_a_rolled_step_does_what_the_step_does(clip_norm: float | None) -> None:
    model = decoder(5)
    twin = copy.deepcopy(model)
    graph = pruned(step_of(model, clip_norm).graph())
    rolled = roll(pruned(step_of(twin, clip_norm).graph()), COSTS)
    verify(rolled)
    assert all(node.attrs.trips.value == 5 for node in loops(rolled))
    for _ in range(2):
        expected, found = evaluate(graph, fed(), {}), evaluate(rolled, fed(), {})
        close_each(found["loss"], expected["loss"])
    for ours, theirs in zip(twin.parameters(), model.parameters(), strict=True):
        close(ours.numpy(), theirs.numpy())


@pytest.mark.long
@pytest.mark.parametrize(
    ("clip_norm", "rate"),
    long_rows(product([None, 1.0], [None, 0.01]), [(1.0, None)]),
)
def test_a_step_is_as_long_for_more_layers(clip_norm: float | None, rate: float | None) -> None:
    """Also where a decayed weight is known but for the weight, which the step itself assigns."""
    steps = [lm.compile(step_of(decoder(n), clip_norm, rate)) for n in (5, 9)]
    counts = [len(step.report().kernels) for step in steps]
    assert counts[0] == counts[1]


def test_only_small_values_leave_the_layers() -> None:
    """No product that a matrix product sums over, no view of one; of the gradients, the weights'
    own shapes. The longest value is then a layer's widest activation, or a weight.
    """
    rolled = roll(pruned(step_of(decoder(6), 1.0).graph()), COSTS)
    widest = BATCH * LENGTH * 12
    for node in loops(rolled):
        for result in node.types[node.attrs.carried :]:
            assert np.prod([n.value for n in result.shape[1:]]) <= widest


def test_of_a_gated_layer_only_gate_and_other_factor_leave() -> None:
    """Not the sigmoid, nor its product with the gate: both are computed again from the gate."""
    forward = loops(roll(pruned(step_of(decoder(6)).graph()), COSTS))[0]
    extents = [[n.value for n in r.shape[1:]] for r in forward.types[forward.attrs.carried :]]
    assert sum(shape[-1] == 12 for shape in extents) == 2


def residual(layers: int, trained: bool) -> lm.Graph:
    """Layers whose first product reads what is carried; steps of SGD, or the gradients alone."""
    cx = lm.Graph()
    x = cx.tensor((8, 4), name="x")
    h = x.sin()
    parameters = []
    for k in range(layers):
        up = lm.Parameter((4, 6), lm.float32, f"up{k}")
        down = lm.Parameter((6, 4), lm.float32, f"down{k}")
        h = h + (h @ cx.weight_of(up)).tanh() @ cx.weight_of(down)
        parameters += [up, down]
    loss = (h * h).sum().output("loss")
    if trained:
        lm.optim.SGD(parameters, lr=0.1).step(loss)
    else:
        for k, g in enumerate(lm.grad(loss, [x, *parameters])):
            g.output(f"g{k}")
    return cx


@pytest.mark.parametrize("trained", [True, False], ids=["trained", "gradients alone"])
def test_no_product_passes_between_loops(trained: bool) -> None:
    """Neither the view of a carried value or of Weights that a product reads, nor the product."""
    rolled = roll(pruned(residual(8, trained).graph()), COSTS)
    assert len(loops(rolled)) >= 2
    for node in loops(rolled):
        body = node.attrs.body
        for value in (*(argument.value for argument in body.arguments), *body.results):
            assert len(value.shape) <= 2


def test_slices_are_walked_backwards_not_copied() -> None:
    cx = step_of(decoder(6))
    backward = loops(roll(pruned(cx.graph()), COSTS))[-1]
    _, streams, _ = backward.attrs.split(backward.args)
    lists = [s for s, count in zip(streams, backward.attrs.streams, strict=True) if count]
    assert all(value.node.op.group == "leaf" for values in lists for value in values)
    walked = [s[0] for s, count in zip(streams, backward.attrs.streams, strict=True) if not count]
    assert walked
    assert all(value.node.op.name == "View" for value in walked)
    labels = [row.label for row in lm.compile(cx).report().kernels if row.trips == 1]
    assert labels.count("Copy") <= 3  # none of a stream


def test_states_of_a_step_take_no_second_buffers() -> None:
    model = decoder(6)
    step = lm.compile(step_of(model, 1.0))
    step(fed())
    weights = sum(p.numel() * 4 for p in model.parameters())
    report = step.memory_report()
    assert report.weight_bytes == weights
    assert 2 * weights <= report.state_bytes <= 2 * weights + 64


def test_states_with_one_formula_are_one_loop_each_kind() -> None:
    """Updates that nothing joins: found by structure, and apart where shapes or formulas differ."""
    cx = lm.Graph()
    rate = cx.tensor((), name="rate")
    kinds = {(3, 4): 0.9, (3, 5): 0.9, (4, 4): 0.5}
    states = []
    for shape, keep in kinds.items():
        for k in range(6):
            given = cx.tensor(shape, name=f"g{shape}{k}")
            mean, weight = cx.state(shape, init=k + 1), cx.state(shape, init=k)
            moved = mean * keep + given * rate + given.sum() * 0.1
            cx.assign(mean, moved)
            cx.assign(weight, weight - moved / (moved * moved + 1).sqrt())
            states += [mean.state, weight.state]
    rolled = roll(cx.graph(), COSTS)
    verify(rolled)
    assert [node.attrs.trips.value for node in loops(rolled)] == [6, 6, 6]
    rng = np.random.default_rng(0)
    inputs = {
        node.attrs.name: rng.standard_normal([n.value for n in node.types[0].shape]).astype("f4")
        for node in cx.graph().by_op()["Input"]
    }
    evaluate(cx.graph(), inputs, {})
    expected = [state.numpy() for state in states]
    for state in states:
        state.reset()
    evaluate(rolled, inputs, {})
    for state, value in zip(states, expected, strict=True):
        np.testing.assert_array_equal(state.numpy(), value)
        state.reset()
    lm.compile(cx)(inputs)
    for state, value in zip(states, expected, strict=True):
        # two steps of training in float32: 80 ulp of values about 1
        np.testing.assert_allclose(state.numpy(), value, rtol=1e-5, atol=1e-6)
