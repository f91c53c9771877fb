"""`fit` on several ranks: the run of one rank, within the rounding of sums in another order."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.base.errors import CollectiveError, InputError
from luminal.distributed import run_local
from luminal.nn import functional as F
from luminal.training import EMA, ArrayDataset, Batches, Record, fit
from tests.distributed.training_run import (
    Array,
    digest,
    examples,
    network,
    on_threads,
    run,
    trained,
)
from tests.long_share import mostly_long

TENSOR = lm.Mesh((2,), ("tensor",))
BOTH = lm.Mesh((2, 2), ("data", "tensor"))


@cache
def _on_one(kind: str, options: tuple[tuple[str, Any], ...]) -> tuple[Record, dict[str, Array]]:
    model = network(kind)
    return run(model, None, **dict(options)), trained(model)


def on_one(kind: str = "norm", **options: Any) -> tuple[Record, dict[str, Array]]:
    """The record and what was trained by one rank without a mesh."""
    return _on_one(kind, tuple(options.items()))


def near(actual: Array, expected: Array) -> None:
    """Sums in another order differ by a few ulps, which Adam divides by a gradient's own size."""
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)  # ulps of small gradients


def check(size: int, kind: str = "norm", mesh: lm.Mesh | None = None, plan: Any = None,
          **options: Any) -> list[Record]:  # fmt: skip
    """All ranks have the same, and it is what one rank has."""
    alone, expected = on_one(kind, **options)
    results = on_threads(size, kind, mesh, plan=plan, **options)
    assert len({digest(arrays) for _, arrays in results}) == 1
    for record, arrays in results:
        near(np.array(record.losses), np.array(alone.losses))
        for path, value in expected.items():
            near(arrays[path], value)
    return [record for record, _ in results]


@pytest.mark.parametrize(
    "case",
    mostly_long(
        [
            (2, {"plan": "zero1", "accumulate": 2}),
            (2, {"kind": "batch"}),
            (2, {}),
            (4, {"plan": "zero3"}),
            (2, {"kind": "batch", "accumulate": 2, "plan": "zero3"}),
            (2, {"amp": "float16", "plan": "zero1"}),
            (2, {"plan": "tensor", "mesh": TENSOR}),
            (4, {"plan": "tensor+zero1", "mesh": BOTH}),
            (2, {"plan": {"0.weight": ("data", None)}}),
            (2, {"kind": "mixture", "plan": "expert", "mesh": lm.Mesh(2, "expert")}),
            (
                4,
                {
                    "kind": "mixture",
                    "plan": "expert+zero1",
                    "mesh": lm.Mesh((2, 2), ("data", "expert")),
                },
            ),
            (4, {"kind": "mixture", "plan": "data"}),
        ],
        1,
    ),
)
def test_ranks_train_as_one(case: tuple[int, dict[str, Any]]) -> None:
    size, options = case
    check(size, **options)


@pytest.mark.long
def test_rows_of_metrics_are_of_whole_batches_and_the_first_rank_logs(tmp_path: Any) -> None:
    validation = Batches(examples(30), 8)  # the last of 6 divides, by 2 and not by 4
    log = tmp_path / "log.jsonl"
    alone, _ = on_one(statistics=3, validate=validation, steps=3)
    results = on_threads(4, statistics=3, validate=validation, steps=3, log=log)
    assert len(log.read_text().splitlines()) == 3
    for record, _ in results:
        for row, expected in zip(record.history, alone.history, strict=True):
            for name in ("loss", "grad_norm", "epoch", "lr", "validation_loss"):
                near(np.array(row.get(name, 0)), np.array(expected.get(name, 0)))
        of_weight = [run.history[-1]["gradients"]["0.weight"]["max"] for run in (record, alone)]
        near(*map(np.array, of_weight))


def test_a_rate_follows_what_the_first_rank_found() -> None:
    models, schedulers = [network() for _ in range(2)], {}

    def work(engine: Any) -> list[float]:
        schedulers[engine.rank] = optim.lr_scheduler.ReduceLROnPlateau(0.01, patience=0)

        def validate(model: nn.Module) -> dict[str, float]:
            return {"validation_loss": float(engine.rank)}  # as if ranks disagreed

        record = run(
            models[engine.rank], lm.Mesh((2,), ("data",)), validate=validate, validate_every=1,
            scheduler=schedulers[engine.rank], steps=3,
        )  # fmt: skip
        return [row["lr"] for row in record.history] + [record.validation_loss or 0]

    first, second = run_local(2, work, timeout=20)
    assert first == second
    assert first[-1] == 0


def test_each_rank_loads_its_rows_only() -> None:
    data = Batches(examples(), 16, seed=5, prefetch=0)
    whole = [batch[0] for batch in Batches(examples(), 16, seed=5, prefetch=0)]
    asked: list[int] = []

    class Asked(ArrayDataset):
        def take(self, positions: Any) -> Any:
            asked.append(len(positions))
            return super().take(positions)

    data.dataset = Asked(*examples().arrays)
    parts = [batch[0] for batch in data.part(1, 4)]
    assert asked == [4] * len(whole)
    assert data.state_dict()["epoch"] == 1
    for part, batch in zip(parts, whole, strict=True):
        assert np.array_equal(part, batch[4:8])


def fails(size: int, text: str, kind: type[Exception] = InputError, **options: Any) -> None:
    with pytest.raises(kind, match=text):
        on_threads(size, **options)


def test_what_ranks_cannot_train_is_refused() -> None:
    fails(2, "batches have 15 rows, which do not divide by 2, the ranks of mesh axis 'data'; "
          "make them of 16", data=Batches(examples(), 15, drop_last=True))  # fmt: skip
    fails(2, "the last batch of an epoch has 7 rows.*drop_last=True leaves it out",
          data=Batches(examples(23), 16))  # fmt: skip
    fails(2, "detect_nan=True computes a step again on one rank", detect_nan=True)
    fails(2, r"the mesh \(4,\) has 4 ranks, and 2 were launched", mesh=lm.Mesh((4,), ("data",)))
    fails(2, "no plan 'zeero1'", plan="zeero1")
    with pytest.raises(InputError, match="plan='zero1', but there is no mesh; give both"):
        run(network(), None, plan="zero1")


def test_ranks_that_begin_apart_are_named() -> None:
    models = [network() for _ in range(2)]
    dict(models[1].named_parameters())["4.weight"].set(np.ones((1, 16), np.float32))

    def work(engine: Any) -> None:
        run(models[engine.rank], lm.Mesh((2,), ("data",)))

    with pytest.raises(CollectiveError, match=r"the model that fit begins with.*'4.weight: "):
        run_local(2, work, timeout=20)


def test_averages_of_a_cut_model() -> None:
    models = [network() for _ in range(2)]

    def work(engine: Any) -> dict[str, Array]:
        model, mesh = models[engine.rank], lm.Mesh((2,), ("data",))
        lm.shard(model, "zero1", mesh)
        averages, optimizer = EMA(model.parameters(), 0.5), optim.SGD(model.parameters(), 0.1)
        graph = lm.Graph()
        x, y = (graph.tensor((8, n), name=name).shard("data") for name, n in (("x", 6), ("y", 1)))
        optimizer.step(F.mse_loss(model.eval()(x), y))
        averages.update(graph)
        step = lm.compile(graph, mesh=mesh)
        rows = examples().take(np.arange(4) + 4 * engine.rank)
        for _ in range(2):
            step({"x": rows[0], "y": rows[1]})
        with averages.swapped():
            inside = trained(model)
        last = trained(model)
        assert digest(inside) != digest(last)
        assert averages.averages[dict(model.named_parameters())["0.weight"]].local().shape == (8, 6)
        return inside

    first, second = run_local(2, work, timeout=20)
    assert digest(first) == digest(second)


def twice(model: nn.Module, **options: Any) -> dict[str, Array]:
    """What two calls of `fit` train."""
    optimizer = optim.AdamW(model.named_parameters(), lr=0.01)
    data = Batches(examples(), 16, seed=5, drop_last=True)
    for _ in range(2):
        fit(model, F.mse_loss, data, optimizer, steps=2, progress=False, seed=9, **options)
    return trained(model)


@pytest.mark.long
def test_a_second_fit_goes_on_with_the_cut_model() -> None:
    models, expected = [network() for _ in range(2)], twice(network())

    def work(engine: Any) -> dict[str, Array]:
        return twice(models[engine.rank], mesh=lm.Mesh((2,), ("data",)), plan="zero3")

    for arrays in run_local(2, work, timeout=20):
        for path, value in expected.items():
            near(arrays[path], value)


@pytest.mark.parametrize(
    ("differs", "words"),
    [
        ({"lr": (0.1, 0.2)}, "0.1.* rank 1 has .*0.2"),
        ({"seed": (0, 1)}, "rank 0 has 'seed of data = 0', rank 1 has 'seed of data = 1'"),
        ({"size": (4, 8)}, "rank 0 has 'batches = 4', rank 1 has 'batches = 2'"),
        ({"clip_norm": (None, 1.0)}, "clip_norm = None', rank 1 has 'clip_norm = 1.0'"),
    ],
)
def test_ranks_that_call_it_otherwise_are_refused(differs: dict[str, Any], words: str) -> None:
    def work(engine: Any) -> None:
        lm.manual_seed(0)
        model, mine = nn.Linear(3, 1), {name: each[engine.rank] for name, each in differs.items()}
        rows = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
        data = Batches(
            ArrayDataset(rows, rows[:, :1]), mine.get("size", 4), seed=mine.get("seed", 0)
        )
        optimizer = optim.SGD(model.parameters(), lr=mine.get("lr", 0.1))
        mesh = lm.Mesh((2,), ("data",))
        with pytest.raises(CollectiveError, match=f"what fit was given differs.*{words}"):
            fit(model, F.mse_loss, data, optimizer, mesh=mesh, progress=False,
                clip_norm=mine.get("clip_norm"))  # fmt: skip

    run_local(2, work, timeout=5)
