"""A decoder's training step by plans: how many collectives there are, and that it is the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import optim
from luminal.distribute.held import owners, spec_of_held
from luminal.distribute.mesh import Mesh, Spec
from luminal.distribute.plans import follow
from luminal.memory.state import Assignable
from luminal.models.train import ModelSettings, new_llama, next_token_loss
from tests.distributed.whole import on_one, on_ranks, spread
from tests.long_share import mostly_long

BATCH: dict[str, Spec] = {"ids": (("data",), ()), "targets": (("data",), ())}


def step(layers: int, plan: str, mesh: Mesh) -> tuple[lm.Graph, dict[Assignable, Spec]]:
    """A training step of a small Llama, and how its Parameters and moments are cut."""
    lm.manual_seed(0)
    model = new_llama(ModelSettings(32, 48, layers, 4, 32, num_key_value_heads=2), 64)
    graph = lm.Graph("step")
    ids = graph.tensor((8, 16), "int32", name="ids")
    targets = graph.tensor((8, 16), "int32", name="targets")
    loss = next_token_loss(model(ids), targets)
    loss.output("loss")
    optim.AdamW(model.named_parameters(), lr=1e-3).step(loss, clip_norm=1.0)
    for part in plan.split("+"):
        follow(model.named_parameters(), part, mesh)
    if plan == "tensor":  # as Megatron's, whose tables are cut too; here the layers are counted
        model.model.embed_tokens.weight.spec = None
    specs = {owner: spec_of_held(owner) for owner in owners(graph.graph())}
    return graph, {owner: spec for owner, spec in specs.items() if spec is not None}


def batch() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.integers(0, 64, (8, 16)).astype(np.int32) for name in BATCH}


def counted(layers: int, plan: str) -> tuple[Counter[str], int, int]:
    """The collectives of a step on two ranks by kind, those of matrices and more, and bytes."""
    mesh = Mesh((2,), ("tensor" if plan == "tensor" else "data",))
    graph, states = step(layers, plan, mesh)
    inputs = {} if plan == "tensor" else BATCH
    rows = spread(graph.graph(), mesh, inputs, states, "engine")[0].rows
    # A gathered Parameter is named by itself, all else by the leaves that it is made of.
    assert all(row.kind == "all_gather" or " of " in row.reason.value for row in rows)
    assert all(row.reason.value and row.reason.why for row in rows)
    large = sum(len(row.shape) > 2 for row in rows)
    return Counter(row.kind for row in rows), large, sum(row.bytes.value for row in rows)


def test_data_parallel_reduces_each_gradient_the_loss_and_the_count() -> None:
    kinds, _, _ = counted(8, "data")
    assert kinds == {"all_reduce": 74 + 2}


def test_tensor_parallel_reduces_four_times_a_layer() -> None:
    kinds, large, _ = counted(8, "tensor")
    assert large == 4 * 8
    # The rest are scalars: each cut gradient's part of the norm.
    assert set(kinds) == {"all_reduce"}


def test_zero_one_sends_what_data_parallel_sends_and_zero_three_half_as_much_again() -> None:
    # A row of every Parameter is divided by two; the sum of squares of all gradients is one more
    # scalar, 4 bytes.
    _, _, data = counted(4, "data")
    _, _, zero1 = counted(4, "zero1")
    _, _, zero3 = counted(4, "zero3")
    assert zero1 <= data + 4
    assert zero3 <= 1.55 * data  # the table is read twice, as it is the head's too


@pytest.mark.parametrize(
    ("shape", "spec"),
    [
        ((8, 6), (("tensor", "data"), ())),  # both divide the first dimension
        ((6, 8), (("tensor",), ("data",))),  # which they do not here
        ((6, 3), (("tensor",), ())),  # nor any other
    ],
)
def test_a_plan_adds_a_mesh_axis_where_all_of_them_divide(shape: Any, spec: Spec) -> None:
    mesh, weight = Mesh((2, 2), ("data", "tensor")), lm.Parameter(shape, name="w")
    weight.spec = (("tensor",), ())
    for _ in range(2):  # a plan may be followed twice
        assert follow([("w", weight)], "zero3", mesh) == ([] if "data" in str(spec) else ["w"])
        assert weight.spec == spec


def test_a_layer_that_a_tensor_plan_cannot_cut_is_named() -> None:
    mesh, even, odd = Mesh((4,), ("tensor",)), lm.Parameter((8, 6)), lm.Parameter((6, 8))
    named = [("up.q_proj.weight", even), ("up.k_proj.weight", odd), ("up.o_proj.weight", odd)]
    assert follow(named, "tensor", mesh) == ["up.k_proj.weight"]
    assert even.spec == (("tensor",), ())
    assert odd.spec == ((), ("tensor",))


def test_a_parameter_is_gathered_anew_for_each_reader() -> None:
    weight, graph = lm.Parameter((4, 4), name="w"), lm.Graph()
    with lm.recording(graph):
        x, w = graph.tensor((2, 4), name="x"), graph.constant(weight)
        ((x @ w).tanh() @ w.mT).output("y")
    rows: Spec = (("data",), ())
    out, _ = spread(graph.graph(), Mesh((2,), ("data",)), {"x": rows}, {weight: rows})
    assert [(row.kind, row.reason.value) for row in out.rows] == [("all_gather", "w")] * 2
    assert len(out.graph.by_op()["Collective"]) == 2


@pytest.mark.parametrize(
    ("plan", "shape", "names"),
    [
        pytest.param("data", (4,), ("data",), marks=pytest.mark.long),
        pytest.param("tensor", (2,), ("tensor",), marks=pytest.mark.long),
        ("zero1", (4,), ("data",)),
        ("zero3", (2,), ("data",)),
        ("tensor+zero3", (2, 2), ("data", "tensor")),
        pytest.param("tensor+zero1", (2, 2), ("tensor", "data"), marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("order", mostly_long(["tree", "engine"], 1))
def test_all_ranks_together_take_the_step_of_one(
    plan: str, shape: tuple[int, ...], names: tuple[str, ...], order: str
) -> None:
    mesh = Mesh(shape, names)
    graph, states = step(1, plan, mesh)
    inputs = BATCH if "data" in names else {}
    outputs, after = on_one(graph.graph(), batch())
    got_outputs, got_after, _ = on_ranks(graph.graph(), mesh, inputs, states, batch(), order)
    np.testing.assert_allclose(got_outputs["loss"], outputs["loss"], rtol=1e-6)  # the sum's order
    assert got_after.keys() == after.keys()
    for owner, value in after.items():
        # Sums of other lengths are rounded elsewhere: a few ulps of gradients, which an update of
        # Adam divides by their own size.
        np.testing.assert_allclose(got_after[owner], value, rtol=2e-4, atol=1e-6)
