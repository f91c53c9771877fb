"""What `fit` tells callbacks, what they may do, and what loggers and pictures hold."""

from __future__ import annotations

import struct
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.base.errors import InputError
from luminal.distributed import run_local
from luminal.nn import functional as F
from luminal.training import Callback, EarlyStopping, Record, TensorBoard, WandB, fit
from luminal.training.event_file import EventFile, crc32c, masked
from luminal.training.plot import svg_of

X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
PAIRS = [(X, X[:, :1])] * 3


def trained(callbacks: Any = None, **options: Any) -> tuple[nn.Linear, Record]:
    """A layer after some epochs of three steps."""
    lm.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    settings = {"progress": False, "callbacks": callbacks} | options
    return model, fit(model, F.mse_loss, PAIRS, optimizer, **settings)


class Told(Callback):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def on_begin(self, run: Any) -> None:
        self.events.append(f"begin {run.record.steps}")

    def on_step(self, run: Any, row: Any) -> None:
        self.events.append(f"step {row['step']}")
        row["twice"] = 2 * row["loss"]

    def on_epoch(self, run: Any, row: Any) -> None:
        self.events.append(f"epoch {row['epoch']}")

    def on_checkpoint(self, run: Any, path: Path) -> None:
        assert path.is_file()
        self.events.append(path.stem)

    def on_end(self, run: Any) -> None:
        self.events.append("end")


def test_events_come_in_order(tmp_path: Path) -> None:
    told, rows = Told(), list[Any]()
    after = [told, lambda run, row: rows.append((run.record.steps, row["twice"]))]
    _, record = trained(after, epochs=2, checkpoint=tmp_path, checkpoint_every=2)
    assert told.events == [
        *("begin 0", "step 1", "step 2", "step-000000002", "step 3", "epoch 0"),
        *("step 4", "step-000000004", "step 5", "step 6", "epoch 1", "step-000000006", "end"),
    ]
    assert rows == [(k + 1, 2 * loss) for k, loss in enumerate(record.losses)]
    assert record.history[0]["twice"] == rows[0][1]  # what they add is in the history


def test_the_end_is_told_after_an_error() -> None:
    def fails(run: Any, row: Any) -> None:
        raise KeyError(row["step"])

    told = Told()
    with pytest.raises(KeyError, match="1"):
        trained([told, fails])
    assert told.events == ["begin 0", "step 1", "end"]


def scripted(values: Sequence[float]) -> Any:
    """A validation that finds these values, one after the other."""
    left = iter(values)
    return lambda model: {"score": next(left)}


@pytest.mark.parametrize(
    ("values", "options", "steps", "best"),
    [
        ([5, 4, 4, 3, 3, 3, 9], {"patience": 2}, 6, (3, 4)),
        ([5, 4, 4, 3, 3, 3, 9], {"patience": 1}, 3, (4, 2)),
        ([1, 2, 2, 1, 9, 9, 9], {"mode": "max", "patience": 2}, 4, (2, 2)),
        ([5, 4.5, 4, 3.5, 0, 0, 0], {"patience": 3, "min_delta": 0.9}, 7, (0, 5)),
        ([5, float("nan"), 4, 3, 2, 1, 0], {}, 2, (5, 1)),
    ],
)
def test_a_run_stops_early(values: Any, options: Any, steps: int, best: Any) -> None:
    stopping = EarlyStopping("score", **options)
    _, record = trained(stopping, steps=7, validate=scripted(values), validate_every=1)
    assert (record.steps, (stopping.best, stopping.best_step)) == (steps, best)
    assert ("score" in record.stopped) == (steps < 7)
    assert ("ended early: score" in repr(record)) == (steps < 7)


def test_the_best_comes_back_also_in_a_run_that_goes_on(tmp_path: Path) -> None:
    values = [5, 4, 6, 7, 8, 9]

    def stopped(values: Any, **options: Any) -> tuple[Any, Record]:
        stopping = EarlyStopping("score", patience=3, restore_best=True)
        settings = {"steps": 6, "validate": scripted(values), "validate_every": 1} | options
        model, record = trained(stopping, **settings)
        return model.weight.numpy().copy(), record

    best = trained(steps=2)[0].weight.numpy()
    weight, record = stopped(values)
    assert record.steps == 5
    np.testing.assert_array_equal(weight, best)
    stopped(values, steps=3, checkpoint=tmp_path)
    weight, record = stopped(values[3:], checkpoint=tmp_path)
    assert (record.resumed, record.steps) == (3, 5)
    np.testing.assert_array_equal(weight, best)
    weight, record = stopped([], checkpoint=tmp_path)  # nothing is left to do
    assert (record.resumed, record.steps, record.stopped != "") == (5, 5, True)
    np.testing.assert_array_equal(weight, best)


def test_a_metric_that_no_row_has() -> None:
    with pytest.warns(UserWarning, match="no row had the metric 'validation_loss'; they have step"):
        trained(EarlyStopping())
    with pytest.raises(InputError, match='mode=\'least\'; takes "min" or "max"'):
        EarlyStopping(mode="least")


def test_one_rank_ends_all() -> None:
    models, mesh = [nn.Linear(3, 1) for _ in range(2)], lm.Mesh((2,), ("data",))
    for model in models:
        for path, held in model.named_parameters():
            held.set(np.zeros(held.shape, np.float32))
            held.name = path

    def work(engine: Any) -> Record:
        def stop(run: Any, row: Any) -> None:
            if engine.rank == 1 and row["step"] == 2:
                run.stop("rank 1 has seen enough")

        optimizer = optim.SGD(models[engine.rank].parameters(), lr=0.1)
        return fit(
            models[engine.rank], F.mse_loss, PAIRS, optimizer, mesh=mesh, progress=False,
            callbacks=stop,
        )  # fmt: skip

    for record in run_local(2, work, timeout=20):
        assert (record.steps, record.stopped) == (2, "rank 1 has seen enough")


def test_each_group_has_its_rate() -> None:
    model = nn.Linear(3, 1)
    groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.5}]
    record = fit(model, F.mse_loss, PAIRS, optim.SGD(groups, lr=0.1), progress=False)
    assert [(row["lr"], row["lr.1"]) for row in record.history] == [(0.1, 0.5)] * 3


# --- TensorBoard ----------------------------------------------------------------------------------


def records(data: bytes) -> Iterator[bytes]:
    """The events of a file, whose checks are right."""
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event, ends = data[12 : 12 + length], data[12 + length : 16 + length]
        assert struct.pack("<I", masked(crc32c(data[:8]))) == data[8:12]
        assert struct.pack("<I", masked(crc32c(event))) == ends
        yield event
        data = data[16 + length :]


def fields(data: bytes) -> list[tuple[int, Any]]:
    """The fields of a message of protocol buffers and their values."""

    def varint() -> int:
        nonlocal data
        number = shift = 0
        while True:
            byte, data = data[0], data[1:]
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    rows = list[tuple[int, Any]]()
    while data:
        key = varint()
        kind = key & 7
        if kind == 0:
            rows.append((key >> 3, varint()))
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        part, data = data[:size], data[size:]
        rows.append(
            (key >> 3, struct.unpack({1: "<d", 5: "<f"}[kind], part)[0] if kind != 2 else part)
        )
    return rows


def scalars(path: Path) -> list[tuple[int, dict[str, float]]]:
    """The step and the numbers of each event but the first."""
    head, *events = map(dict, map(fields, records(path.read_bytes())))
    assert head[3] == b"brain.Event:2"
    rows = []
    for event in events:
        values = [dict(fields(value)) for _, value in fields(event[5])]
        rows.append((event[2], {value[1].decode(): value[2] for value in values}))
    return rows


def test_checks_are_those_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720's own example is of 32 bytes:
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert masked(0) == 0xA282EAD8


def test_events_for_tensorboard(tmp_path: Path) -> None:
    validate = scripted([0.5])
    _, record = trained(TensorBoard(tmp_path / "a"), validate=validate, statistics=3)
    (path,) = (tmp_path / "a").iterdir()
    assert path.name.startswith("events.out.tfevents.")
    rows = scalars(path)
    assert [step for step, _ in rows] == [1, 2, 3]
    for (_, row), loss in zip(rows, record.losses, strict=True):
        assert row["loss"] == np.float32(loss)
    last = rows[-1][1]
    assert (last["score"], last["lr"]) == (0.5, np.float32(0.1))
    weight = record.history[-1]["gradients"]["weight"]
    assert last["gradients/weight/max"] == np.float32(weight["max"])
    file = EventFile(tmp_path / "b")
    file.add(2**40 + 5, {"ä" * 200: -1.5})
    file.close()
    assert scalars(file.path) == [(2**40 + 5, {"ä" * 200: -1.5})]


def test_tensorboard_reads_them(tmp_path: Path) -> None:
    name = "tensorboard.backend.event_processing.event_accumulator"
    reader = pytest.importorskip(name, reason="TensorBoard is not installed")
    trained(TensorBoard(tmp_path))
    events = reader.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3]


# --- Weights & Biases -----------------------------------------------------------------------------


class Wandb(types.ModuleType):
    """Stands for the package: a run at a time, which notes what it is told."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.run: Any = None
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.options: dict[str, Any] = {}

    def init(self, **options: Any) -> Any:
        self.options, self.run = options, self
        return self

    def log(self, row: dict[str, float], step: int) -> None:
        assert self.run is not None
        self.rows.append((step, row))

    def finish(self) -> None:
        self.run = None


def test_rows_for_weights_and_biases(monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    _, record = trained(WandB(project="p", mode="offline"))
    assert wandb.options == {"project": "p", "mode": "offline"}
    assert [(step, row["loss"]) for step, row in wandb.rows] == [*enumerate(record.losses, 1)]
    assert wandb.run is None
    running = wandb.init(project="mine")
    trained(WandB(project="other"))
    assert (wandb.run, wandb.options) == (running, {"project": "mine"})  # it stays open
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(
        InputError, match=r"WandB: wandb is not installed; .*\[wandb\].*TensorBoard"
    ):
        WandB()


# --- pictures -------------------------------------------------------------------------------------


def drawn(rows: Any) -> tuple[list[list[tuple[float, float]]], list[str]]:
    """The points of each curve of a picture, and its texts."""
    tree = ElementTree.fromstring(svg_of(rows))
    name = "{http://www.w3.org/2000/svg}"
    paths = [path.get("d", "") for path in tree.iter(f"{name}path") if path.get("fill") == "none"]
    curves = []
    for path in paths:
        curves.append([(float(x), float(y)) for x, y in map(str.split, path[1:].split("L"))])
    return curves, [text.text or "" for text in tree.iter(f"{name}text")]


def test_losses_are_drawn(tmp_path: Path) -> None:
    rows = [{"step": k, "loss": 10.0 - k} for k in range(1, 6)]
    rows[1]["validation_loss"] = 7.0
    rows[3]["validation_loss"] = 6.0
    (training, smooth, validation), texts = drawn(rows)
    assert training == smooth  # so few are not smoothed
    xs, ys = zip(*training, strict=True)
    assert len(set(np.diff(xs).round(1))) == 1
    assert np.ptp(np.diff(ys)) < 0.2  # a line, downwards
    assert ys[0] < ys[-1]
    assert [x for x, _ in validation] == [xs[1], xs[3]]
    assert abs(validation[0][1] - ys[2]) < 0.2  # both are 7
    assert {"training", "validation", "step", "2", "8"} <= set(texts)


def test_wide_scales_long_runs_and_nothing() -> None:
    rows = [{"step": k, "loss": 10.0 ** (-k / 1e4)} for k in range(50_000)]
    rows[777]["loss"] = float("nan")
    rows[40_000]["loss"] = 5.0
    (curve, _), texts = drawn(rows)
    assert len(curve) <= 600
    assert {"1", "0.1", "0.001"} <= set(texts)
    peak = min(curve, key=lambda point: point[1])
    assert abs((peak[0] - curve[0][0]) / (curve[-1][0] - curve[0][0]) - 0.8) < 0.01
    assert drawn([])[1] == ["no losses"]
    assert drawn([{"step": 3, "loss": 0.0}])[0] == [[(62.0, 173.0)], [(62.0, 173.0)]]


def test_a_record_shows_itself(tmp_path: Path) -> None:
    _, record = trained(plot=tmp_path / "a/loss.svg")
    assert (tmp_path / "a/loss.svg").read_text() == svg_of(record.history)
    record.plot(tmp_path / "loss.html")
    assert "<title>loss</title><svg" in (tmp_path / "loss.html").read_text()
    record.stopped = "a < b"
    text = record._repr_html_()
    assert text.startswith("<svg")
    assert "3 steps, ended early: a &lt; b" in text
    with pytest.raises(InputError, match=r"plot='loss\.png'; it ends in \.svg or \.html"):
        trained(plot="loss.png")
