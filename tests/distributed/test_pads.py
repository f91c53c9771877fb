"""Extents that the ranks do not divide: the last ranks hold fewer positions, and pads are not seen.

`on_ranks` fills the pads of what is given with NaN (113 in integers), so a pad that leaks shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
import luminal.nn.functional as F
from luminal.base.errors import InputError, ShapeError
from luminal.distribute.mesh import Mesh
from luminal.distribute.parts import part, unpadded
from luminal.distributed import run_local
from luminal.memory.state import Assignable, State
from tests.distributed.whole import layout_of, on_one, on_ranks
from tests.long_share import long_but, mostly_long

Array = np.ndarray[Any, Any]
MESHES = (Mesh((2,), ("a",)), Mesh((4,), ("a",)), Mesh((2, 2), ("a", "b")), Mesh((8,), ("a",)))
ROWS = (1, 5, 9, 10)

USES: dict[str, Callable[[lm.Tensor, lm.Tensor], lm.Tensor]] = {
    "sum": lambda x, at: x.sum(0),
    "mean": lambda x, at: x.mean(),
    "max of what is below 0": lambda x, at: (-x.exp()).amax(0),
    "min of integers": lambda x, at: (at + 7).amin(0),
    "softmax along the cut": lambda x, at: x.softmax(0),
    "variance": lambda x, at: x.var(0, correction=0),
    "scan": lambda x, at: x.cumsum(0),
    "sort": lambda x, at: x.sort(0)[0],
    "argmax": lambda x, at: x.argmax(0),
    "product of rows": lambda x, at: x.mT @ x,
    "all pairs": lambda x, at: x @ x.mT,
    "merged": lambda x, at: x.flatten().sin() * 2,
    "merged and split": lambda x, at: x.flatten().unflatten(0, (-1, 6)).sum(0),
    "backwards": lambda x, at: x.flip(0) - x,
    "one further": lambda x, at: F.pad(x, (0, 0, 1, 0))[: x.shape[0]] + x,
    "fewer": lambda x, at: (x[:-1] - x[1:]).sum(0),
    "positions": lambda x, at: (x * lm.arange(x.shape[0], dtype="float32")[:, None]).sum(0),
    "looked up": lambda x, at: x[at],
    "added by integers": lambda x, at: lm.zeros(4, 6).index_add(0, at % 4, x),
    "written by integers": lambda x, at: lm.zeros(11, 6).index_copy(0, lm.arange(x.shape[0]), x),
    "division by what pads have": lambda x, at: (x / x.abs().sum(1, keepdim=True)).sum(),
}


@pytest.mark.parametrize("use", long_but(USES, [*USES][::4]))
def test_pads_do_not_leak(use: str) -> None:
    rng = np.random.default_rng(3)
    for mesh in MESHES:
        for rows in ROWS:
            graph = lm.Graph()
            with lm.recording(graph):
                x, at = graph.tensor((rows, 6), name="x"), graph.tensor((rows,), "int64", name="at")
                names = mesh.names
                USES[use](x.shard(names), at.shard(names)).output("y")
            arrays = {"x": rng.standard_normal((rows, 6)).astype(np.float32)}
            arrays["at"] = rng.integers(0, rows, rows)
            y = on_ranks(graph.graph(), mesh, None, {}, arrays)[0]["y"]
            wanted = on_one(graph.graph(), arrays)[0]["y"]
            np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)  # sums in another order


def test_the_first_axis_of_a_spec_is_the_outermost() -> None:
    rows, mesh = np.arange(10), Mesh((2, 3), ("a", "b"))
    layout = layout_of((("a", "b"),), rows.shape, mesh)
    held = [unpadded(part(rows, layout, at), rows.shape, layout, at).tolist()
            for at in map(mesh.coordinates, range(6))]  # fmt: skip
    assert held == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], []]


def test_nothing_is_cut_into_nothing() -> None:
    graph = lm.Graph()
    with lm.recording(graph):
        x = graph.tensor((0, 4), name="x").shard("a")
        (x.flip(0).flatten() * 2).sum().output("y")
    arrays = {"x": np.zeros((0, 4), np.float32)}
    assert layout_of((("a",), ()), (0, 4), MESHES[1])[0][0].block == 1
    assert on_ranks(graph.graph(), MESHES[1], None, {}, arrays)[0]["y"] == 0


def test_integers_past_a_cut_table_find_no_pad() -> None:
    graph = lm.Graph()
    with lm.recording(graph):
        table, at = graph.tensor((5, 3), name="table"), graph.tensor((2,), "int64", name="at")
        table.shard("a").gather(0, at.unsqueeze(1).expand((2, 3))).output("y")
    arrays = {"table": np.ones((5, 3), np.float32), "at": np.array([4, 2])}
    for mesh in MESHES[:2]:
        y = on_ranks(graph.graph(), mesh, None, {}, arrays)[0]["y"]
        np.testing.assert_array_equal(y, np.ones((2, 3), np.float32))


def test_what_is_held_keeps_its_real_rows() -> None:
    graph, state = lm.Graph(), State((10,), lm.float32, np.arange(10.0), name="moment")
    with lm.recording(graph):
        x = graph.tensor((10,), name="x").shard("a")
        graph.assign(state, graph.read(state) * 0.5 + x)
        (graph.read(state).amax(0) + x.sum()).output("y")
    arrays = {"x": np.arange(10, dtype=np.float32)}
    states: dict[Assignable, Any] = {state: (("a",),)}
    outputs, new, _ = on_ranks(graph.graph(), MESHES[1], None, states, arrays)
    np.testing.assert_array_equal(new[state], np.arange(10) * 1.5)
    assert outputs["y"] == 9 + 45


def step(rows: int, words: int, mesh: Mesh) -> tuple[lm.Graph, lm.Parameter, lm.Parameter]:
    """A step of a model of a vocabulary: rows, the table and the head are cut."""
    rng, graph = np.random.default_rng(5), lm.Graph()
    table, head = (
        lm.Parameter(rng.standard_normal((words, 8)).astype(np.float32), name=name)
        for name in ("table", "head")
    )
    if mesh.size > 1:
        table.spec = head.spec = (("a",), ())
    with lm.recording(graph):
        ids = graph.tensor((rows,), "int64", name="ids")
        ids = ids.shard("a") if mesh.size > 1 else ids
        x = F.embedding(ids, graph.constant(table)).tanh()
        loss = F.cross_entropy(x @ graph.constant(head).mT, (ids + 1) % words)
        optimizer = lm.optim.AdamW([table, head], lr=0.1)
        optimizer.step(loss)
        x.output("x")
        loss.output("loss")
    return graph, table, head


@pytest.mark.parametrize("ranks", mostly_long([2, 4], 1))
def test_a_rank_gives_and_takes_its_real_rows(ranks: int) -> None:
    rows, words = 9, 13
    ids = np.random.default_rng(1).integers(0, words, rows)
    alone, *held = step(rows, words, Mesh((1,), ("a",)))
    exe = lm.compile(alone)
    wanted = [dict(exe({"ids": ids})) for _ in range(2)]
    block, room = -(-rows // ranks), -(-words // ranks)

    def work(engine: Any) -> Any:
        graph, table, head = step(rows, words, Mesh((ranks,), ("a",)))
        exe = lm.compile(graph, mesh=Mesh((ranks,), ("a",)))
        own = ids[engine.rank * block : (engine.rank + 1) * block]
        got = [{k: np.array(v) for k, v in exe({"ids": own}).items()} for _ in range(2)]
        assert len(table.local()) == len(range(words)[engine.rank * room :][:room])
        with pytest.raises(ShapeError, match=re.escape("this rank has ")):
            exe({"ids": ids})
        with pytest.raises(InputError, match="leave out= out"):
            exe({"ids": own}, out={"loss": np.zeros((), np.float32)})
        # One rank's refusal is that of all.
        refusal = "leave out= out" if engine.rank == 0 else "rank 0 refuses what it was given"
        with pytest.raises(InputError, match=refusal):
            exe({"ids": own}, out={"loss": np.zeros((), np.float32)} if engine.rank == 0 else None)
        return got, table.whole(), head.whole()

    results = run_local(ranks, work, timeout=60)
    for k, run in enumerate(wanted):
        x = np.concatenate([got[k]["x"] for got, _, _ in results])
        np.testing.assert_allclose(x, run["x"], rtol=1e-4, atol=1e-5)  # sums in another order
        for got, _, _ in results:
            np.testing.assert_allclose(got[k]["loss"], run["loss"], rtol=1e-5)  # the same
    for _, *whole in results:
        for parameter, value in zip(held, whole, strict=True):
            np.testing.assert_allclose(value, parameter.numpy(), rtol=1e-3, atol=1e-5)  # the same
