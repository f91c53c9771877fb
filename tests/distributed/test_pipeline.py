"""`PipelineParallel`: the bits of one rank that accumulates the same microbatches."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.backends import registry
from luminal.base.errors import CollectiveError, InputError, ShapeError
from luminal.distribute.pipeline.schedule import Piece, Schedule, with_updates
from luminal.distributed import MpiBackend, PipelineParallel, run_local, schedule_of
from luminal.hlir.prune import pruned
from luminal.nn import functional as F
from luminal.rolling.roll import roll
from luminal.runtime.pipelined import Running
from luminal.training import ArrayDataset, Batches, PipelineStep, fit
from luminal.training import pipeline as steps_of
from tests.distributed.pipelines import (
    NETS,
    RATE,
    Net,
    Trained,
    accumulated,
    accumulated_tied,
    in_stages,
    made,
)
from tests.distributed.running import needs_mpi, under_mpiexec
from tests.long_share import mostly_long

PROGRAM = ("-m", "tests.distributed.pipelines")
SCHEDULES = ("1f1b", "zero_bubble", "gpipe", "interleaved")
CASES = [
    (net, stages, schedule)
    for net in ("mlp", "llama", "unet")
    for stages in (2, 4)
    for schedule in SCHEDULES
]


@cache
def on_one_rank(net: str) -> Trained:
    """What one rank trains that accumulates microbatches, computed without pipelines."""
    return accumulated_tied() if net == "llama" else accumulated(net)


def ranks_for(stages: int, schedule: str) -> int:
    """Interleaved ranks have two stages each, where that leaves more than one rank."""
    return 2 if schedule == "interleaved" else stages


@pytest.mark.parametrize("case", mostly_long(CASES, 1))
def test_the_bits_are_those_of_one_rank(case: tuple[str, int, str]) -> None:
    net, stages, schedule = case
    for trained in in_stages(net, ranks_for(stages, schedule), stages, schedule):
        assert trained.same_as(on_one_rank(net))


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_kernels_give_the_bits_of_one_rank_with_all_stages(case: tuple[str, int, str]) -> None:
    """One program of the whole network may fuse otherwise, and round otherwise by ulps."""
    net, stages, schedule = case
    (alone,) = in_stages(net, 1, stages, "gpipe", backend="cpu")
    for trained in in_stages(net, ranks_for(stages, schedule), stages, schedule, backend="cpu"):
        assert trained.same_as(alone)
    # Adam divides gradients by their own size, so what cancels to ulps counts in full.
    assert alone.farthest(on_one_rank(net)) < 1e-4


@pytest.mark.long
@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("net", ["again", "recurrent", "repeated"])
def test_checkpoints_loops_and_layers_of_several_stages(net: str, stages: int) -> None:
    (alone,) = in_stages(net, 1, stages, "gpipe")
    for trained in in_stages(net, stages, stages, "1f1b"):
        assert trained.same_as(alone)
    # Sums of a layer that several stages have are added behind those of microbatches.
    assert net == "repeated" or alone.same_as(on_one_rank(net))
    assert alone.farthest(on_one_rank(net)) < 1e-6  # of Parameters up to 1, by Adam's division


@pytest.mark.long
def test_embeddings_that_are_tied_go_from_the_first_stage_to_the_last() -> None:
    def look(step: PipelineStep) -> None:
        staged = step._steps.staged
        assert [*staged.pieces.gradients.values()].count([1, 0]) == 1  # the table's
        # Sums of it are sent once a step: no message of a microbatch is as large as a table.
        sizes = [
            staged.shape_of(name)[0] for names in staged.pieces.messages.values() for name in names
        ]
        assert (32, 16) not in sizes

    first, last = in_stages("llama", 2, 2, "1f1b", look=look)
    assert first.same_as(last)
    assert first.same_as(on_one_rank("llama"))


@pytest.mark.long
def test_a_parameter_lies_with_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least is sent behind the product of one column, whose gradient has no node of its own in
    front of those of its operands' views.
    """
    places: list[tuple[str, int]] = []
    sizes = (6, 16), (16, 1), (1, 16), (16, 1)
    narrow = NETS["mlp"]._replace(make=lambda: nn.Sequential(*(nn.Linear(*n) for n in sizes)))
    monkeypatch.setitem(NETS, "narrow", narrow)

    def look(step: PipelineStep) -> None:
        staged = step._steps.staged
        for (_, stage), piece in staged.graphs.items():
            read = {node.attrs.parameter for node in piece.graph.by_op().get("Weight", ())}
            places.extend((p.name, stage) for p in read)
        assert all(len(stages) == 1 for stages in staged.pieces.gradients.values())

    in_stages("narrow", 1, 2, "gpipe", steps=1, look=look)
    assert len({name for name, _ in places}) == 8
    assert len({*places}) == 8, sorted({*places})


@pytest.mark.long
def test_skips_are_sent_past_stages() -> None:
    sent = []

    def look(step: PipelineStep) -> None:
        sent.append({*step._steps.staged.pieces.messages})

    in_stages("unet", 4, 4, "1f1b", steps=1, look=look)
    pairs = {(kind, s, t) for kind, s, t in sent[0] if abs(s - t) > 1}
    assert {kind for kind, _, _ in pairs} == {"F", "I"}
    assert len({frozenset(pair) for pair in sent}) == 1


@pytest.mark.long
@pytest.mark.parametrize("fault", ["order", "weights", "messages", "sums"])
def test_faults_are_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: microbatches added the other way round, an update of one stage only, a message of
    another microbatch, gradients that are not added.
    """
    expected = on_one_rank("mlp")
    if fault == "order":
        cut = steps_of._microbatches
        monkeypatch.setattr(steps_of, "_microbatches", lambda batch, count: cut(batch, count)[::-1])
    elif fault == "weights":
        update = steps_of._Update.run

        def skipped(self: Any, channels: Any, rates: Any, first: bool) -> Any:
            if self._pipe.rank == 1:
                self._update = None
            return update(self, channels, rates, first)

        monkeypatch.setattr(steps_of._Update, "run", skipped)
    elif fault == "messages":
        run, first = Running._run, dict[str, Any]()

        def mixed(self: Any, piece: Any, held: Any, results: Any) -> Any:
            if piece[:2] == ("F", 1) and piece.microbatch < 2:
                first.update(held[1, 0] if piece.microbatch == 0 else {})
                held[1, piece.microbatch].update(first)
            return run(self, piece, held, results)

        monkeypatch.setattr(Running, "_run", mixed)
    else:
        adding = steps_of._adding
        monkeypatch.setattr(
            steps_of, "_adding",
            lambda graph, sums: adding(graph, dict(list(sums.items())[:1])),
        )  # fmt: skip
    for trained in in_stages("mlp", 2, 2, "1f1b"):
        assert not trained.same_as(expected)


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [
        ("mlp", ("data",), None), ("llama", ("tensor",), "tensor"),
        ("llama", ("data", "tensor"), "tensor+zero1"), ("unet", ("data",), "zero3"),
    ],
)  # fmt: skip
def test_data_and_tensor_axes_in_one_mesh(case: tuple[str, tuple[str, ...], str | None]) -> None:
    net, names, plan = case
    inner, axes = (2,) * len(names), ("pipe", *names)
    backend = "reference" if net == "mlp" else "cpu"
    how: dict[str, Any] = {"plan": plan, "backend": backend, "microbatches": 2}
    alone = in_stages(net, 0, 2, "gpipe", mesh=lm.Mesh((1, *inner), axes), **how)[0]
    for trained in in_stages(net, 0, 2, "1f1b", mesh=lm.Mesh((2, *inner), axes), **how):
        assert trained.same_as(alone)
    # Other orders of sums over ranks, by Adam's division.
    assert alone.farthest(accumulated(net, microbatches=2, backend=backend)) < 1e-3


@pytest.mark.long
def test_a_found_schedule_and_one_of_ones_own() -> None:
    own = Schedule(
        "mine", 2, 4,
        with_updates(
            [
                [Piece("F", 0, i) for i in range(4)] + [Piece("B", 0, i) for i in range(4)],
                [Piece(kind, 1, i) for i in range(4) for kind in ("F", "I", "W")],
            ]
        ),
    )  # fmt: skip
    for schedule in ("found", own):
        for trained in in_stages("mlp", 2, 2, schedule):
            assert trained.same_as(on_one_rank("mlp"))


def refused(words: str, ranks: int = 2, **options: Any) -> None:
    """Checks the error of all ranks' PipelineStep."""

    def work(engine: Any) -> None:
        model, net = made("mlp"), NETS["mlp"]
        rows = options.pop("rows", (16, 16))
        step_options = {k: options.pop(k) for k in ("clip_norm", "seed") if k in options}
        step = PipelineStep(
            PipelineParallel(model, MpiBackend(), **options), net.loss,
            optim.SGD(model.named_parameters(), lr=0.1), backend="reference",
            **step_options,
        )  # fmt: skip
        step(*(array[:count] for array, count in zip(net.batch, rows, strict=True)))

    with pytest.raises((InputError, ShapeError), match=words):
        run_local(ranks, work, timeout=5)


def test_what_is_refused() -> None:
    refused("5 stages: the model has 4 layers .*; give stages=4 or fewer", 1, stages=5,
            microbatches=4)  # fmt: skip
    refused("a batch of 10 rows does not divide into 4 microbatches; give 12", 1, stages=1,
            microbatches=4, rows=(10, 10))  # fmt: skip
    refused(r"a batch of arrays \(16, .*\), \(8, .*; give each as many rows as the others", 1,
            microbatches=4, rows=(16, 8))  # fmt: skip
    for norm in (-1.0, math.nan, "1", True):
        refused("PipelineStep: clip_norm=.*; it must be a number of at least 0", 1, clip_norm=norm)
    refused("PipelineStep: seed=-1 is negative", 1, seed=-1)
    refused("PipelineParallel: mesh is a int; give lm.Mesh", 1, mesh=2)
    refused("the schedules are gpipe, 1f1b", 1, schedule=["1f1b"])
    refused("3 stages do not divide by 2 ranks", stages=3)
    refused("microbatches is 0", microbatches=0)
    refused("the schedules are gpipe, 1f1b, interleaved, zero_bubble, found", schedule="zb")
    refused("the schedule '1f1b' is for 4 microbatches, and there are 8", microbatches=8,
            schedule=schedule_of("1f1b", 2, 2, 4))  # fmt: skip
    good = schedule_of("1f1b", 2, 2, 4)
    late = good.orders[0][2:3] + good.orders[0][:2] + good.orders[0][3:]
    refused("schedule 'late': ranks wait for each other for ever: rank 0 waits for the gradients of"
            " stage 1 for stage 0, microbatch 0, which rank 1 sends; rank 1 waits for the values",
            microbatches=4, schedule=Schedule("late", 2, 4, (late, good.orders[1])))  # fmt: skip
    refused("the mesh has the axes data, and no 'pipe'", mesh=lm.Mesh((2,), ("data",)))
    refused(r"the mesh \(4,\) has 4 ranks, and 2 were launched", mesh=lm.Mesh((4,), ("pipe",)))
    refused("plan='tensor' cuts Parameters over further mesh axes", plan="tensor")


def test_a_rank_that_fails_in_the_middle_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    run = steps_of._caller

    def failing(exe: Any, given: Any) -> Any:
        call = run(exe, given)

        def checked(taken: Any, microbatch: int) -> Any:
            if lm.distributed.rank() == 1 and microbatch == 2:
                raise RuntimeError("rank 1 has failed")
            return call(taken, microbatch)

        return checked

    monkeypatch.setattr(steps_of, "_caller", failing)
    with pytest.raises((RuntimeError, CollectiveError), match="rank 1 has failed"):
        in_stages("mlp", 2, 2, "1f1b", steps=1)


def trained_by_fit(ranks: int, stages: int, **options: Any) -> list[tuple[Any, dict[str, Any]]]:
    """The record and all Parameters of each rank."""
    models, net = [made("mlp") for _ in range(ranks)], NETS["mlp"]

    def work(engine: Any) -> tuple[Any, dict[str, Any]]:
        model = PipelineParallel(models[engine.rank], MpiBackend(), stages, 4)
        data = Batches(ArrayDataset(*net.batch), 8, seed=5)
        record = fit(
            model, net.loss, data, optim.AdamW(model.named_parameters(), lr=RATE), epochs=2,
            clip_norm=1.0, progress=False, validate=Batches(ArrayDataset(*net.batch), 8),
            **options,
        )  # fmt: skip
        return record, {path: p.numpy() for path, p in model.named_parameters()}

    return run_local(ranks, work, timeout=20)


@pytest.mark.long
def test_fit_goes_on_with_other_stages(tmp_path: Path) -> None:
    ((expected, values),) = trained_by_fit(1, 2, backend="reference")
    trained_by_fit(2, 2, backend="reference", steps=2, checkpoint=tmp_path)
    for record, arrays in trained_by_fit(4, 4, backend="reference", checkpoint=tmp_path):
        assert record.resumed == 2
        assert record.losses == expected.losses[2:]
        assert record.validation_loss == expected.validation_loss
        assert all(np.array_equal(arrays[path], values[path]) for path in values)


def test_what_fit_refuses() -> None:
    for words, options in (
        ("accumulate: a PipelineParallel has none; give microbatches= instead", {"accumulate": 2}),
        ("mesh does not go with a PipelineParallel; give PipelineParallel its mesh",
         {"mesh": lm.Mesh((1,), ("data",))}),
        ("leaves does not go with a PipelineParallel", {"leaves": 2}),
        ("detect_nan does not go", {"detect_nan": True}),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            trained_by_fit(1, 2, **options)


@pytest.mark.long
def test_running_statistics_are_those_of_microbatches_one_after_another() -> None:
    def trained(ranks: int) -> list[dict[str, Any]]:
        lm.manual_seed(0)
        models = [
            nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
            for _ in range(ranks)
        ]
        for model in models:
            for (_, p), (_, q) in zip(
                model.named_parameters(), models[0].named_parameters(), strict=True
            ):
                p.set(q.numpy())

        def work(engine: Any) -> dict[str, Any]:
            model = models[engine.rank]
            step = PipelineStep(
                PipelineParallel(model, MpiBackend(), 2, 4), F.mse_loss,
                optim.SGD(model.named_parameters(), lr=0.1), backend="reference",
            )  # fmt: skip
            for _ in range(2):
                step(*NETS["mlp"].batch)
            step.synchronize()
            return {path: held.numpy() for path, held in model.named_buffers()}

        return run_local(ranks, work, timeout=20)

    (alone,) = trained(1)
    assert not np.array_equal(alone["1.running_mean"], np.zeros(8))
    for held in trained(2):
        assert all(np.array_equal(held[path], alone[path]) for path in alone)


@pytest.mark.long
def test_layers_are_rolled_within_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages are cut between layers, before equal layers become a Loop."""
    trips = []
    costs = registry.find("cpu").costs  # type: ignore[union-attr]

    def look(step: PipelineStep) -> None:
        for (kind, stage), piece in step._steps.staged.graphs.items():
            for loop in roll(pruned(piece.graph), costs).by_op().get("Loop", ()):
                trips.append((kind, stage, int(loop.attrs.trips.value)))

    x = np.zeros((16, 64), np.float32)
    layers = Net(lambda: nn.Sequential(*(Layer() for _ in range(8))), F.mse_loss, (x, x))
    monkeypatch.setitem(NETS, "deep", layers)
    in_stages("deep", 1, 2, "gpipe", steps=1, look=look)
    assert {("F", 0), ("F", 1)} <= {(kind, stage) for kind, stage, _ in trips}, trips
    assert all(count <= 5 for _, _, count in trips), trips


class Layer(nn.Module):
    """One of many equal ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x: Any) -> Any:
        """As wide as `x`."""
        return x + self.second(F.gelu(self.first(x)))


@needs_mpi()
@pytest.mark.long
@pytest.mark.parametrize("case", [("llama", 2, "1f1b"), ("unet", 2, "zero_bubble"),
                                  ("mlp", 4, "interleaved")])  # fmt: skip
def test_ranks_of_mpi_train_alike(case: tuple[str, int, str]) -> None:
    net, stages, schedule = case
    settings = f'{{"net": "{net}", "stages": {stages}, "schedule": "{schedule}"}}'
    digests = set()
    for ranks in (1, 2):
        ended = under_mpiexec(
            ranks, *PROGRAM, settings if ranks > 1 else settings.replace(schedule, "gpipe")
        ).end(120)
        assert ended.status == 0, ended.err
        lines = [line for line in ended.out.splitlines() if line.startswith("digest")]
        assert len(lines) == ranks
        digests.update(lines)
    assert len(digests) == 1, digests


@needs_mpi()
@pytest.mark.long
def test_a_rank_that_is_killed_in_the_middle_ends_all() -> None:
    ended = under_mpiexec(
        2, *PROGRAM, '{"net": "mlp", "stages": 2, "kill": true}', LUMINAL_COLLECTIVE_TIMEOUT="5"
    ).end(60)
    assert ended.status != 0
    assert not ended.left
    assert "digest" not in ended.out


@needs_mpi()
@pytest.mark.long
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_idle_share_is_the_simulated_one(schedule: str) -> None:
    """Within 15%, on two ranks of one thread: a machine that others use may take three attempts."""
    shares = []
    for _ in range(3):
        ended = under_mpiexec(2, *PROGRAM, f'{{"measure": "{schedule}"}}', LUMINAL_THREADS="1").end(
            200
        )
        assert ended.status == 0, ended.err
        (line,) = (line for line in ended.out.splitlines() if line.startswith("idle"))
        shares.append(tuple(map(float, line.split()[2:])))
        if abs(shares[-1][0] - shares[-1][1]) <= 0.15 * shares[-1][1]:
            return
    raise AssertionError(f"measured and simulated: {shares}")
