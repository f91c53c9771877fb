"""Programs that are written rank by rank: what ranks do together, its gradients, and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import GraphError, InputError
from luminal.distributed import Engine, run_local

MESH = lm.Mesh((4,), ("data",))
ROWS = np.arange(4 * 8 * 3, dtype=np.float32).reshape(4, 8, 3)


def run(record: Any, backend: str = "cpu") -> list[Any]:
    """What each of four ranks gets for its own rows."""

    def work(engine: Engine) -> Any:
        graph = lm.Graph()
        x = graph.tensor((8, 3), name="x")
        with lm.spmd(MESH):
            record(x).output("y")
        return lm.compile(graph, backend)({"x": ROWS[engine.rank]})["y"]

    return run_local(4, work)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (lambda x: lm.all_reduce(x, "data"), [ROWS.sum(0)] * 4),
        (lambda x: lm.all_reduce(x, "data", "max"), [ROWS.max(0)] * 4),
        (lambda x: lm.all_gather(x, "data"), [ROWS.reshape(32, 3)] * 4),
        (lambda x: lm.reduce_scatter(x, "data"), np.split(ROWS.sum(0), 4)),
        (
            lambda x: lm.all_to_all(x, "data"),
            [np.concatenate([np.split(rows, 4)[r] for rows in ROWS]) for r in range(4)],
        ),
        (
            lambda x: lm.permute_ranks(x, "data", [(0, 1), (1, 2), (2, 3)]),
            [np.zeros((8, 3)), *ROWS[:3]],
        ),
        (lambda x: x * lm.rank_along(x, "data").float(), [ROWS[r] * r for r in range(4)]),
    ],
)
def test_ranks_do_together(record: Any, expected: list[Any]) -> None:
    for backend in ("cpu", "reference"):
        for got, wanted in zip(run(record, backend), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_gradients_go_the_other_way() -> None:
    # y of each rank is the sum of all x, and the loss that of all y * (rank + 1): each x counts
    # 1 + 2 + 3 + 4 times.
    def record(x: Any) -> Any:
        y = lm.all_reduce(x, "data") * (lm.rank_along(x, "data").float() + 1)
        return lm.grad(lambda t: (lm.all_reduce(t, "data") * (y.detach() * 0 + 1)).sum())(x)

    for got in run(record):
        np.testing.assert_array_equal(got, np.full((8, 3), 4))


def test_a_wrong_call_says_what_it_takes() -> None:
    x = lm.Graph().tensor((8, 3), name="x")
    with pytest.raises(GraphError, match=r"all_reduce over 'data': .*`with lm.spmd\(mesh\):`"):
        lm.all_reduce(x, "data")
    with lm.spmd(MESH):
        with pytest.raises(InputError, match="op='mean'; it is 'sum' or 'max'"):
            lm.all_reduce(x, "data", "mean")
        with pytest.raises(lm.ShapeError, match="no 'tensor'"):
            lm.all_gather(x, "tensor")
        with pytest.raises(InputError, match="receives at most once"):
            lm.permute_ranks(x, "data", [(0, 1), (2, 1)])
        with pytest.raises(lm.ShapeError, match="first dimension"):
            lm.all_to_all(x[:3], "data")


def test_marks_and_collectives_do_not_mix() -> None:
    def work(engine: Engine) -> None:
        graph = lm.Graph()
        x = graph.tensor((8, 3), name="x")
        with lm.spmd(MESH):
            y = lm.all_reduce(x, "data")
        graph.is_by_rank = False
        y.output("y")
        lm.compile(graph, mesh=MESH)

    with pytest.raises(GraphError, match="has collectives of its own"):
        run_local(4, work)
