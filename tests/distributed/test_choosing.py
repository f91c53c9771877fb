"""Plan "auto": what is chosen, that all ranks choose the same, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.base.costs import Link
from luminal.base.errors import CompileError, InputError
from luminal.distribute.choose import plans_of
from luminal.distribute.mesh import Mesh
from luminal.distributed import Auto, choose, read_plan, run_local
from luminal.hlir.attributes import MarkAttrs
from luminal.hlir.prune import pruned
from luminal.models.train import ModelSettings, new_llama, next_token_loss
from luminal.nn import functional as F
from luminal.session import choosing
from tests.distributed.training_run import digest, network, on_threads, run, trained

DATA = Mesh((2,), ("data",))
LINKS = {"data": Link(1e-6, 1e9)}


def recorded(model: nn.Module, rows: int = 16) -> lm.Graph:
    """A training step, whose batch is marked."""
    graph = lm.Graph("step")
    x, y = (graph.tensor((rows, n), name=name).shard("data") for name, n in (("x", 6), ("y", 1)))
    loss = F.mse_loss(model.eval()(x), y)  # no dropout, which would need a key
    loss.output("loss")
    optim.AdamW(model.parameters(), 0.1).step(loss)
    return graph


def refusals(size: int, auto: Auto) -> list[str]:
    """What each rank is told where it asks for the plan of a step."""
    models = [network() for _ in range(size)]

    def work(engine: Any) -> str:
        with pytest.raises(CompileError) as refused:
            choose(recorded(models[engine.rank]), models[engine.rank], auto=auto)
        return str(refused.value)

    return run_local(size, work, timeout=20)


def test_a_fit_takes_mesh_and_plan_and_says_why() -> None:
    results = on_threads(2, plan="data", steps=2)
    models = [network() for _ in range(2)]

    def work(engine: Any) -> tuple[str, str]:
        record = run(models[engine.rank], None, plan=Auto(links=LINKS), steps=2)
        return record.plan, digest(trained(models[engine.rank]))

    (why, bits), (other_why, other_bits) = run_local(2, work, timeout=20)
    assert (why, bits) == (other_why, other_bits)
    assert bits == digest(results[0][1])
    lines = why.splitlines()
    assert lines[0].startswith("plan data on data 2 was chosen; a rank has ")
    assert [line.split()[0] for line in lines[2:-1]] == ["data", "zero1", "zero3"]
    text = lines[-1].partition('read_plan("')[2].removesuffix('")').replace("\\n", "\n")
    assert read_plan(text) == (DATA, "data")


def test_the_memory_of_a_rank_decides() -> None:
    model = network()

    def chosen(memory: int) -> choosing.Chosen:
        whole, graph = [*model.named_parameters()], recorded(model).graph()
        machine = choosing.Machine(1e9, 1e9, memory)
        plans = choosing.choices(
            graph, whole, lambda *_: None, [DATA], machine, lambda _: LINKS
        )  # fmt: skip
        return choosing.Chosen(DATA, plans[0].plan, " ".join(str(each.fits) for each in plans))

    assert chosen(10**9).plan == "data"
    assert chosen(3000).plan in ("zero1", "zero3")
    assert chosen(10) == choosing.Chosen(DATA, "zero3", "False False False")
    assert all(parameter.spec is None for parameter in model.parameters())


def test_where_nothing_fits_all_ranks_say_what_would() -> None:
    first, second = refusals(2, Auto(2000, LINKS))
    assert first == second
    assert first.startswith("plan 'auto': no plan fits into the 2 kB that a rank has: the least")
    assert "by zero3 on data 2; zero3 on data 4 would take" in first
    assert refusals(2, Auto(10, LINKS))[0].endswith("make the batch or the model smaller")


def test_ranks_that_would_choose_apart_go_by_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_of = choosing.machine_of

    def apart(*arguments: Any) -> Any:  # as if the second rank's machine had no memory
        machine = machine_of(*arguments)
        return machine if lm.distributed.rank() == 0 else replace(machine, memory=1.0)

    monkeypatch.setattr(choosing, "machine_of", apart)
    models = [network() for _ in range(2)]

    def work(engine: Any) -> choosing.Chosen:
        model = models[engine.rank]
        return choose(recorded(model), model, DATA, Auto(links=LINKS))

    first, second = run_local(2, work, timeout=20)
    assert first == second
    assert read_plan(first.text()) == (DATA, "data")


def test_the_first_program_on_the_mesh_chooses_for_those_that_follow() -> None:
    models = [network() for _ in range(2)]

    def work(engine: Any) -> tuple[str, str, Any]:
        model = models[engine.rank]
        lm.shard(model, Auto(3000, LINKS), DATA)
        graph = recorded(model)
        assert dict(model.named_parameters())["0.weight"].slots_spec is None
        with pytest.raises(InputError, match="waits for a plan on data 2, and this program is for"):
            lm.compile(graph, mesh=Mesh((2,), ("other",)))
        step = lm.compile(graph, mesh=DATA)
        reads = lm.Graph()
        model.eval()(reads.tensor((8, 6), name="x").shard("data")).output("y")
        exe = lm.compile(reads, mesh=DATA)
        weight = dict(model.named_parameters())["0.weight"]
        step({"x": np.ones((8, 6), np.float32), "y": np.ones((8, 1), np.float32)})
        return step.explain_sharding(), exe.explain_sharding(), weight.slots_spec or weight.spec

    for step, reads, spec in run_local(2, work, timeout=20):
        assert step.startswith("plan zero")
        assert "2 ranks: data 2" in step
        assert reads.startswith("2 ranks: data 2")
        assert spec == (("data",), ())


def test_what_auto_cannot_choose_is_said() -> None:
    model = network()
    with pytest.raises(InputError, match="its Module, and an Auto; got a Sequential"):
        choose(model, model)  # type: ignore[arg-type]
    graph = lm.Graph()
    model.eval()(graph.tensor((lm.dim("rows"), 6), name="x")).output("y")
    with pytest.raises(CompileError, match="the dim rows has no upper end"):
        choose(graph, model)
    with pytest.raises(CompileError, match="no plan is for pipe 1 ring 1: a mesh of several axes"):
        choose(recorded(model), model, Mesh((1, 1), ("pipe", "ring")))
    with pytest.raises(CompileError, match="plan 'auto': memory '3kB': give bytes"):
        choose(recorded(model), model, auto=Auto("3kB"))
    with pytest.raises(InputError, match="plan='auto' predicts a step of whole batches"):
        run(network(), None, plan="auto", leaves=4)


def test_products_are_not_cut_where_no_layer_has_any() -> None:
    meshes = choosing.meshes_of(4)
    assert [plans_of(mesh)[0] for mesh in meshes] == ["data", "tensor", "tensor"]
    with pytest.raises(CompileError, match="no layer has a name whose products are cut"):
        choosing.choices(
            recorded(network()).graph(), [*network().named_parameters()], lambda *_: {},
            meshes[-1:], choosing.Machine(1e9, 1e9, 1e9), lambda _: LINKS,
        )  # fmt: skip


@pytest.mark.long
def test_one_long_text_is_cut_by_its_positions() -> None:
    model = new_llama(ModelSettings(16, 24, 1, 2, 16, num_key_value_heads=2), 512)
    graph = lm.Graph()
    ids, following = (
        graph.tensor((1, 512), "int32", name=name).shard("data", "sequence/1")
        for name in ("ids", "following")
    )
    loss = next_token_loss(model(ids), following)
    loss.output("loss")
    optim.SGD(model.named_parameters(), lr=0.1).step(loss)
    recorded_step = pruned(graph.graph(), (MarkAttrs,))
    meshes = choosing.meshes_of(2, {"data", "sequence"})
    assert [mesh.shape for mesh in meshes] == [(2, 1), (1, 1, 2), (1, 2)]
    plans = choosing.choices(
        recorded_step, [*model.named_parameters()], lambda *_: None, meshes,
        choosing.Machine(1e9, 1e9, 1e9), lambda mesh: dict.fromkeys(mesh.names, Link(1e-5, 1e9)),
    )  # fmt: skip
    by_mesh = {plan.mesh.shape: plan.price for plan in plans if plan.plan == "sequence"}
    assert by_mesh[1, 2].seconds < 0.8 * by_mesh[2, 1].seconds
    assert by_mesh[1, 2].peak < 0.6 * by_mesh[2, 1].peak  # activations are half
