"""`lm.checkpoint`: gradients as without it and as PyTorch's, less memory, one update of States."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.checkpoint

import luminal as lm
from luminal import nn, optim
from luminal.frontend.tensor import Tensor
from luminal.hlir import printer
from luminal.hlir.attributes import LoopAttrs
from luminal.hlir.graph import Graph, topological
from luminal.hlir.ops import Node
from luminal.hlir.parser import parse as parse_graph
from luminal.hlir.prune import pruned
from luminal.models.llama import Llama, LlamaConfig
from luminal.nn import functional as F
from luminal.program import selection_text
from luminal.rolling.roll import roll
from luminal.session import graph as session
from tests.close import close
from tests.long_share import mostly_long
from tests.machines import COSTS

Array = np.ndarray[Any, Any]
Wrap = Callable[[Any], Any]

WIDTH, ROWS = 16, 8
TOLERANCE = 1e-5  # relative: sums of 16 to 64 terms in float32, in another order


def plain(function: Any) -> Any:
    return function


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def loops(graph: lm.Graph) -> list[Node]:
    rolled = roll(pruned(graph.graph()), COSTS)
    return [node for node in rolled.nodes() if isinstance(node.attrs, LoopAttrs)]


def recomputed(graph: Graph) -> list[Node]:
    return [node for node in pruned(graph).nodes() if node.op.name == "After"]


class Block(nn.Module):
    """A residual layer with what a backward pass keeps most of."""

    def __init__(self, width: int, inner: int) -> None:
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(x)))  # type: ignore[no-any-return]


def mlp_step(
    wrap: Wrap, inner: Sequence[int], rows: int = ROWS, width: int = WIDTH
) -> tuple[lm.Graph, list[lm.Parameter]]:
    """A step of SGD on residual layers of these inner widths."""
    lm.manual_seed(0)
    model = nn.ModuleList([Block(width, n) for n in inner])
    cx = lm.Graph()
    h = cx.tensor((rows, width), name="x")
    for block in model:
        h = wrap(block)(h)
    loss = (h * h).mean().output("loss")
    optim.SGD(model.parameters(), lr=0.1).step(loss)
    return cx, [*model.parameters()]


EQUAL, VARIED = [64] * 12, [60 + 2 * k for k in range(5)]


@pytest.mark.parametrize("inner", mostly_long([EQUAL, VARIED], 1), ids=["rolled", "unlike"])
def test_memory_falls_and_bits_stay(inner: list[int]) -> None:
    found, arenas = [], []
    for wrap in (plain, lm.checkpoint):
        cx, parameters = mlp_step(wrap, inner, rows=256)
        step = lm.compile(cx)
        losses = [float(step({"x": drawn(256, WIDTH)})["loss"]) for _ in range(2)]
        found.append((losses, [np.array(p.numpy()) for p in parameters]))
        arenas.append(step.memory_report().arena_bytes)
    assert 2 * arenas[1] < arenas[0]
    assert found[0][0] == found[1][0]
    # Where layers are unlike, a sum may be cut into other parts when it is computed again.
    rounding = 0 if inner is EQUAL else 1e-7  # of values below 1
    for one, other in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=rounding)


def llama_step(wrap: Wrap, layers: int) -> tuple[lm.Graph, dict[str, Array]]:
    nn.init.manual_seed(0)
    model = Llama(LlamaConfig(8, 12, layers, 2, 1, 4, 16, 6)).train()
    for layer in model.model.layers:
        layer.forward = wrap(layer.forward)
    cx = lm.Graph()
    ids, wanted = (cx.tensor((2, 6), np.int64, name) for name in ("ids", "wanted"))
    loss = F.cross_entropy(model(ids).reshape(-1, 16), wanted.reshape(-1)).output("loss")
    optim.AdamW(model.parameters(), lr=0.01).step(loss)
    tokens = np.random.default_rng(0).integers(0, 16, (2, 6))
    return cx, {"ids": tokens, "wanted": np.roll(tokens, -1, 1)}


@pytest.mark.long
def test_checkpointed_layers_roll() -> None:
    (few, fed), (many, _), (kept, _) = (
        llama_step(lm.checkpoint, 5),
        llama_step(lm.checkpoint, 12),
        llama_step(plain, 5),
    )
    assert [node.attrs.trips.value for node in loops(few)] == [5] * len(loops(few))
    assert [node.attrs.trips.value for node in loops(many)] == [12] * len(loops(few))
    streams = [len(node.attrs.body.results) - node.attrs.carried for node in loops(few)]
    assert streams[0] == 1 < len(loops(kept)[0].attrs.body.results) - 1  # what layers begin with
    one, other = (lm.compile(cx) for cx in (few, kept))
    for _ in range(3):
        np.testing.assert_allclose(one(fed)["loss"], other(fed)["loss"], rtol=TOLERANCE)


def network(wrap: Wrap, x: Tensor, weights: Sequence[Tensor], key: Tensor) -> Tensor:
    """Two parts in a third, one of them with dropout, and a value of a part used outside."""

    def first(h: Tensor) -> tuple[Tensor, Tensor]:
        inner = (h @ weights[0]).tanh()
        return inner @ weights[1], inner

    def second(h: Tensor) -> Tensor:
        return F.dropout((h @ weights[0]).exp(), 0.5, key=key) @ weights[1]

    def both(h: Tensor) -> Tensor:
        y, inner = wrap(first)(h)
        return wrap(second)(y * 0.1) + inner.sum(1, keepdim=True)

    return (wrap(both)(x) ** 2).mean()


def test_inner_parts_are_computed_again_for_outer_copies() -> None:
    cx = lm.Graph()
    x, a, b = cx.tensor((4, 6)), cx.tensor((6, 9)), cx.tensor((9, 6))
    loss = network(lm.checkpoint, x, [a, b], lm.random.key(3, cx))
    lm.grad(loss, x).output("g")
    again = recomputed(cx.graph())
    below = [topological([node.args[0]]) for node in again]
    assert any(node in nodes for node in again for nodes in below)


def test_copies_have_derivatives_of_their_own() -> None:
    odd = lm.custom_vjp(lambda x: x * x, lambda g, y, x: g * x * 3)
    found = []
    for wrap in (plain, lm.checkpoint):
        cx = lm.Graph()
        x = cx.tensor(drawn(5) / 2)
        (first,) = lm.grad(wrap(lambda x: odd(x).exp())(x).sum(), [x])
        found.append(lm.grad(first.sum(), x).numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=TOLERANCE)


def gradients_of(wrap: Wrap, rows: Any, order: int) -> list[Array]:
    cx = lm.Graph()
    x = cx.tensor((rows, 6), name="x")
    weights = [cx.tensor((6, 9), name="a"), cx.tensor((9, 6), name="b")]
    loss = network(wrap, x, weights, lm.random.key(3, cx))
    found = lm.grad(loss, [x, *weights])
    if order == 2:
        found = lm.grad(sum((g**2).sum() for g in found), [x, *weights])
    for k, g in enumerate(found):
        g.output(f"g{k}")
    assert bool(recomputed(cx.graph())) == (wrap is lm.checkpoint)
    fed = {"x": drawn(5, 6) / 2, "a": drawn(6, 9, seed=1) / 3, "b": drawn(9, 6, seed=2) / 3}
    results = lm.compile(cx)(fed)
    return [np.array(results[f"g{k}"]) for k in range(3)]


@pytest.mark.parametrize("order", mostly_long([1, 2], 1), ids=["first", "second"])
@pytest.mark.parametrize("rows", mostly_long(["n", 5], 1), ids=["dynamic", "static"])
def test_nested_parts_with_dropout(rows: Any, order: int) -> None:
    kept, again = (gradients_of(wrap, rows, order) for wrap in (plain, lm.checkpoint))
    for one, other in zip(kept, again, strict=True):
        np.testing.assert_allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE)


@torch.inference_mode(mode=False)
def test_gradients_are_those_of_pytorch() -> None:
    arrays = [drawn(5, 6), drawn(6, 9, seed=1) / 3, drawn(9, 6, seed=2) / 3]
    cx = lm.Graph()
    x, a, b = (cx.tensor(array) for array in arrays)
    y = lm.checkpoint(lambda h: (h @ a).tanh() @ b)(x)
    found = [np.array(g.numpy()) for g in lm.grad((y * y.sin()).sum(), [x, a, b])]
    peers = [torch.tensor(array, requires_grad=True) for array in arrays]
    u, v, w = peers
    z = torch.utils.checkpoint.checkpoint(lambda h: (h @ v).tanh() @ w, u, use_reentrant=False)
    (z * z.sin()).sum().backward()
    for one, peer in zip(found, peers, strict=True):
        assert peer.grad is not None
        np.testing.assert_allclose(one, peer.grad.numpy(), rtol=TOLERANCE, atol=TOLERANCE)


def test_running_statistics_move_once() -> None:
    found = []
    for wrap in (plain, lm.checkpoint):
        lm.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh())
        cx = lm.Graph()
        loss = (wrap(model)(cx.tensor((9, 6), name="x")) ** 2).mean().output("loss")
        optim.SGD(model.parameters(), lr=0.1).step(loss)
        step = lm.compile(cx)
        for _ in range(2):
            step({"x": drawn(9, 6)})
        found.append(model.state_dict())
    assert int(found[1]["1.num_batches_tracked"]) == 2
    for name, array in found[0].items():
        close(found[1][name], array)


@pytest.mark.parametrize("inside", [True, False], ids=["in the body", "around"])
def test_scan(inside: bool) -> None:
    found = []
    for wrap in (plain, lm.checkpoint):
        cx = lm.Graph()
        x, a, h = cx.tensor(drawn(4, 6)), cx.tensor(drawn(6, 6, seed=1) / 3), cx.tensor(drawn(6))

        def body(carry: Tensor, piece: Tensor, wrap: Wrap = wrap, a: Tensor = a) -> Any:
            def step(carry: Tensor) -> Tensor:
                return ((carry @ a).tanh() + piece).sin()

            new = (wrap if inside else plain)(step)(carry)
            return new, new

        def whole(h: Tensor, body: Any = body, x: Tensor = x) -> Tensor:
            last, ys = lm.scan(body, h, x)
            return (last**2).sum() + (ys**3).sum()

        loss = (plain if inside else wrap)(whole)(h)
        gradients = lm.grad(loss * 2, [x, a, h])
        found.append([np.array(g.numpy()) for g in gradients])
        for k, g in enumerate(gradients):
            g.output(f"g{k}")
        graph = pruned(cx.graph())
        bodies = [node.attrs.body for node in graph.by_op()["Loop"]]
        blocks = [topological(body.results) for body in bodies] if inside else [graph.nodes()]
        again = any(node.op.name == "After" for block in blocks for node in block)
        assert again == (wrap is lm.checkpoint)
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE)


def test_transforms() -> None:
    cx = lm.Graph()
    a = cx.tensor(drawn(6, 6) / 3)

    def f(x: Tensor) -> Tensor:
        return (x @ a).exp().sin()

    x, t = cx.tensor(drawn(2, 6)), cx.tensor(drawn(2, 6, seed=4))
    marked = lm.checkpoint(f)
    for transform in (
        lambda g: lm.jvp(g, [x], [t])[1],
        lambda g: lm.vjp(g, x)[1](t)[0],
        lambda g: lm.grad(lambda x: g(x).sum())(x),
    ):
        one, other = transform(f).numpy(), transform(marked).numpy()
        np.testing.assert_allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE)


def test_what_depends_on_weights_alone_is_not_computed_again() -> None:
    cx = lm.Graph()
    x, w = cx.tensor((3, 4)), cx.weight((4, 4))
    loss = lm.checkpoint(lambda x: (x @ w.exp()).tanh())(x).sin().sum()
    lm.grad(loss, [w, x])[0].output("g")
    (again,) = recomputed(cx.graph())
    assert again.args[0] == x.value


def test_a_state_is_never_read_after() -> None:
    cx = lm.Graph()
    held = cx.state((3,))
    after = cx.builder.make("After", (held.value, cx.tensor((3,)).value)).value
    cx.wrap(after).output("y")
    with pytest.raises(lm.VerifyError, match="a run may overwrite"):
        lm.compile(cx)


def test_texts_of_every_stage_are_read_back() -> None:
    cx, _ = mlp_step(lm.checkpoint, EQUAL)
    stages = session.stages(cx)
    graph = parse_graph(printer.to_text(stages.graph))
    assert printer.to_text(graph) == printer.to_text(stages.graph)
    text = selection_text.to_text(stages.selection)
    assert "After" in text
    assert selection_text.to_text(selection_text.parse(text, stages.lowered)) == text


def test_errors() -> None:
    with pytest.raises(lm.DTypeError, match="checkpoint: no operand is a Tensor"):
        lm.checkpoint(lambda x: x)(3)
    cx = lm.Graph()
    outer = cx.tensor((3,))

    def body(carry: Tensor, _: Any) -> Any:
        return lm.checkpoint(lambda x: carry + x)(outer), None

    with pytest.raises(lm.GraphError, match="pass a Tensor of the former as an argument"):
        lm.scan(body, outer, None, 3)
