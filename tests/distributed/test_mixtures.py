"""Mixtures of experts cut over a mesh, beside the same graph on one rank."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.base.costs import Link
from luminal.distribute.choose import choices, meshes_of
from luminal.distribute.distribute import Distributed
from luminal.distribute.mesh import Mesh
from luminal.distribute.move import Moved
from luminal.distribute.plans import follow
from luminal.distribute.price import Machine
from luminal.distributed import run_local
from luminal.hlir.sharding import sent
from luminal.runtime.collectives.engine import Engine
from luminal.shape.expression import const, product_of
from tests.distributed.mixtures import Drawn, bounded, drawn, step
from tests.distributed.whole import on_one, on_ranks

# Gradients are sums over tokens, which ranks add in another order: in float32 each of the some 200
# terms rounds, measured against the largest of the array.
ROUNDING = 200 * 2.0**-24
_RECORDING = threading.Lock()


def check(case: Drawn) -> Distributed:
    """Compares a step of a mesh with that of one rank: results in bits, gradients but for order."""
    outputs, states, out = on_ranks(case.graph, case.mesh, case.inputs, case.held, case.arrays)
    wanted, new = on_one(case.graph, case.arrays)
    assert outputs["y"].tobytes() == wanted["y"].tobytes()
    got = outputs | {state.name: value for state, value in states.items()}
    for name, value in (wanted | {state.name: value for state, value in new.items()}).items():
        limit = ROUNDING * max(1.0, float(np.abs(value).max()))
        np.testing.assert_allclose(got[name], value, rtol=0, atol=limit, err_msg=name)
    if case.is_even:
        assert not [row for row in out.rows if row.axis == "expert" and _is_of_experts(row)]
    return out


def _is_of_experts(row: Moved) -> bool:
    """Is a matrix of experts moved, or its gradient?"""
    name = row.reason.value
    is_gradient = name.startswith("Scatter of") and len(row.shape) > 2
    return is_gradient or (" of " not in name and ".experts." in name)


@pytest.mark.parametrize("seed", range(2))
def test_drawn_mixtures(seed: int) -> None:
    check(drawn(seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 202))
def test_more_drawn_mixtures(seed: int) -> None:
    check(drawn(seed))


@pytest.mark.parametrize("seed", range(2))
def test_drawn_rooms(seed: int) -> None:
    check(bounded(seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 202))
def test_more_drawn_rooms(seed: int) -> None:
    check(bounded(seed))


@pytest.mark.parametrize("tokens", [13, pytest.param(16, marks=pytest.mark.long)])
def test_what_a_step_sends(tokens: int) -> None:
    ranks, top_k, hidden = 4, 2, 4
    mixture = lm.nn.MoE(hidden, 3, 8, top_k)
    out = check(
        step(nn.Sequential(mixture), Mesh(4, "expert"), (tokens,), np.random.default_rng(0))
    )
    own = -(-tokens // ranks)  # tokens of a rank, with pads
    kinds = Counter(row.kind for row in out.rows)
    gathered = sum(row.bytes.value for row in out.rows if row.kind == "all_gather")
    back = [row.bytes.value for row in out.rows if row.kind == "all_to_all"]
    # Each token's row and its integers go to all others, as do its gradient and its weights;
    # beside these the router's gradient (8 rows) and the loss are added.
    rows = own * (hidden + top_k) * 4 * 2
    assert gathered == (rows + 8 * hidden * 4 + 4) * (ranks - 1)
    # Each slot's result comes back. (No gradient of x is asked for.)
    assert back == [own * top_k * hidden * 4 * (ranks - 1)]
    assert kinds == {"all_gather": 6, "all_to_all": 1}


@pytest.mark.parametrize("ranks", [2, 4])
def test_rooms_are_exchanged(ranks: int) -> None:
    groups, tokens, top_k, hidden, experts, capacity = 8, 6, 2, 4, 8, 2
    mixture = nn.MoE(hidden, 3, experts, top_k, capacity=capacity)
    mesh, numbers = Mesh(ranks, "expert"), np.random.default_rng(0)
    out = check(step(nn.Sequential(mixture), mesh, (groups, tokens), numbers))
    # Of the rooms of a rank's groups all but those of its own experts: rows go, results come, and
    # their gradients go. (No gradient of x is asked for.) All tokens' rows would be more.
    rooms = groups // ranks * experts * capacity * hidden * 4
    exchanged = [row.bytes.value for row in out.rows if row.kind == "all_to_all"]
    assert exchanged == [rooms * (ranks - 1) // ranks] * 3
    # The router's gradient and the loss, by which all add theirs.
    assert Counter(row.kind for row in out.rows) == {"all_to_all": 3, "all_gather": 2}


def test_a_capacity_saves_products() -> None:
    def products(capacity: int | None) -> int:
        graph = lm.Graph()
        x = graph.tensor((4, 32, 8), name="x")
        nn.MoE(8, 16, 4, 2, capacity=capacity)(x).output("y")
        sizes = (node.types[0].shape for node in graph.graph().nodes() if node.op.name == "Mul")
        return max(product_of(shape).value for shape in sizes)

    assert products(None) == 4 * 32 * 2 * 16 * 8  # every slot
    assert products(5) == 4 * 4 * 5 * 16 * 8  # an expert's rooms


@pytest.mark.long
@pytest.mark.parametrize(("rows", "capacity"), [((12,), None), ((4, 6), 2)])
def test_compiled_ranks_move_what_was_predicted(
    rows: tuple[int, ...], capacity: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh, start = Mesh(2, "expert"), Engine.start
    moved: Counter[int] = Counter()

    def counting(engine: Engine, kind: Any, source: Any, *rest: Any, **how: Any) -> Any:
        if how["label"] != "that inputs are accepted":  # said of every run
            moved[engine.rank] += sent(kind, const(source.nbytes), engine.size).value
        return start(engine, kind, source, *rest, **how)

    monkeypatch.setattr(Engine, "start", counting)
    x = np.random.default_rng(0).normal(size=(*rows, 4)).astype(np.float32)

    def work(engine: Engine) -> tuple[Any, int, str]:
        model, graph = recorded(rows, capacity)
        lm.shard(model, "expert", mesh)
        step = lm.compile(graph, mesh=mesh)
        y = np.array(step({"x": np.split(x, 2)[engine.rank]})["y"])
        return y, moved[engine.rank], step.explain_sharding()

    _, graph = recorded(rows, capacity)
    expected = np.array(lm.compile(graph)({"x": x})["y"])
    results = run_local(2, work, timeout=20)
    y = np.concatenate([y for y, _, _ in results])
    np.testing.assert_allclose(y, expected, rtol=1e-5)  # kernels of other extents sum otherwise
    for _, count, told in results:
        assert f"; {count} bytes sent by a rank in a run" in told


def recorded(rows: tuple[int, ...], capacity: int | None) -> tuple[nn.Module, lm.Graph]:
    """A training step of a mixture, whose input's first dimension is marked."""
    with _RECORDING:  # threads share one stream of seeds
        lm.manual_seed(0)
        model = nn.MoE(4, 6, 4, 2, capacity=capacity)
    graph = lm.Graph("step")
    y = model(graph.tensor((*rows, 4), name="x").shard("expert"))
    y.output("y")
    optim.SGD(model.named_parameters(), lr=0.1).step((y * y).sum())
    return model, graph


def test_a_plan_that_cuts_experts_is_chosen_where_their_gradients_are_large() -> None:
    model = nn.Sequential(nn.MoE(8, 64, 8, 1))
    graph = lm.Graph("step")
    y = model(graph.tensor((64, 8), name="x"))
    optim.SGD(model.named_parameters(), lr=0.1).step((y * y).sum())

    def chosen(link: Link) -> tuple[str, str]:
        best = choices(
            graph.graph(), [*model.named_parameters()],
            lambda mesh, plan: {"x": (mesh.names, ())},
            meshes_of(4, {"expert"}), Machine(1e12, 1e12, 1e12),
            lambda mesh: dict.fromkeys(mesh.names, link),
        )[0]  # fmt: skip
        return best.plan, " ".join(best.mesh.names)

    assert chosen(Link(1e-9, 1e6)) == ("expert", "data expert")


def test_a_plan_leaves_experts_that_ranks_do_not_divide() -> None:
    mixture = nn.MoE(4, 3, 6, 2)
    named = [(f"mlp.{path}", parameter) for path, parameter in mixture.named_parameters()]
    assert follow(named, "expert", Mesh(4, "expert")) == [
        "mlp.experts.gate_up_proj", "mlp.experts.down_proj"
    ]  # fmt: skip
    assert follow(named, "expert", Mesh(3, "expert")) == []
    assert mixture.experts.down_proj.spec == (("expert",), (), ())
    assert mixture.gate.weight.spec is None
