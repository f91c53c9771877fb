"""`fit`: what it computes, reports and refuses."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import luminal as lm
from luminal import nn, optim
from luminal.base.errors import GraphError, InputError, NonFiniteError
from luminal.nn import functional as F
from luminal.training import ArrayDataset, Batches, Record, fit, progress
from tests.close import close_each
from tests.training.small_run import digest, examples, network, run


def linear(x: Any, y: Any, **options: Any) -> tuple[nn.Linear, Any]:
    """One layer fitted by SGD."""
    model = nn.Linear(x.shape[1], y.shape[1])
    model.weight.set(np.zeros(model.weight.shape, np.float32))
    model.bias.set(np.zeros(model.bias.shape, np.float32))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    size = options.pop("size", len(x))
    data = options.pop("data", None) or Batches(ArrayDataset(x, y), size, shuffle=False)
    loss = options.pop("loss", F.mse_loss)
    return model, fit(model, loss, data, optimizer, **{"progress": False} | options)


X = np.random.default_rng(0).standard_normal((12, 3)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 3).astype(np.float32)

# --- what it computes -----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_steps_are_those_of_gradient_descent(backend: str) -> None:
    w, b = np.zeros((3, 1)), np.zeros(1)
    losses, norms = [], []
    for _ in range(5):
        error = X @ w + b - Y
        losses.append(np.mean(error**2))
        gw, gb = 2 * X.T @ error / 12, 2 * error.mean(0)
        norms.append(math.sqrt((gw**2).sum() + (gb**2).sum()))
        w, b = w - 0.1 * gw, b - 0.1 * gb
    model, record = linear(X, Y, epochs=5, clip_norm=math.inf, backend=backend)
    # losses and weights of some steps, in float32 against float64: 80 ulp
    np.testing.assert_allclose(record.losses, losses, 1e-5)
    # losses and weights of some steps, in float32 against float64: 80 ulp
    np.testing.assert_allclose([row["grad_norm"] for row in record.history], norms, 1e-5)
    close_each(model.weight.numpy(), w.T)
    close_each(model.bias.numpy(), b)


def test_one_program_for_each_shape_of_batches() -> None:
    before = lm.compile_count()
    rates = optim.lr_scheduler.ExponentialLR(0.1, gamma=0.5)
    _, record = linear(X, Y, size=5, epochs=3, scheduler=rates)
    assert lm.compile_count() == before + 2  # batches of 5 and of 2
    assert [row["lr"] for row in record.history] == [0.1 * 0.5**k for k in range(9)]
    assert [row["epoch"] for row in record.history] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_rates_change_the_step() -> None:
    stopped = optim.lr_scheduler.MultiStepLR(0.1, milestones=[2], gamma=0.0)
    _, record = linear(X, Y, epochs=5, scheduler=stopped)
    assert record.losses[0] > record.losses[1] > record.losses[2]
    assert record.losses[2] == record.losses[3] == record.losses[4]


def test_accumulated_batches_make_the_step_of_a_large_one() -> None:
    large, one = linear(X, Y, epochs=4, clip_norm=5.0)
    small, many = linear(X, Y, epochs=4, clip_norm=5.0, size=3, accumulate=4)
    assert (one.steps, many.steps) == (4, 4)
    # losses and weights of some steps, in float32 against float64: 80 ulp
    np.testing.assert_allclose(many.losses, one.losses, 1e-5)
    close_each(small.weight.numpy(), large.weight.numpy())
    norms = [[row["grad_norm"] for row in record.history] for record in (one, many)]
    np.testing.assert_allclose(*norms, 1e-5)


@pytest.mark.parametrize("amp", ["bfloat16", "float16"])
def test_mixed_precision_trains_float32_parameters(amp: str) -> None:
    exact = linear(X, Y, epochs=20)[0].weight.numpy()
    model, record = linear(X, Y, epochs=20, amp=amp)
    assert model.weight.dtype is lm.float32
    off = 0.03 if amp == "bfloat16" else 0.15  # the first scales overflow, so steps are skipped
    np.testing.assert_allclose(model.weight.numpy(), exact, atol=off)
    assert not np.array_equal(model.weight.numpy(), exact)
    assert record.losses[-1] < record.losses[0] / 10


@pytest.mark.parametrize("accumulate", [1, 2])
def test_dropout_draws_anew_in_every_batch(accumulate: int) -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    data = Batches(ArrayDataset(np.tile(X, (8, 1)), np.tile(Y, (8, 1))), 12, shuffle=False)
    still = optim.SGD(model.parameters(), lr=0.0)
    record = fit(model, F.mse_loss, data, still, accumulate=accumulate, progress=False)
    assert len(set(record.losses)) == len(record.losses) == 8 // accumulate


def test_plateaus_are_those_of_the_validation_loss() -> None:
    plateau = optim.lr_scheduler.ReduceLROnPlateau(
        0.1, patience=0, threshold=1e9, threshold_mode="abs"
    )
    _, record = linear(X, Y, epochs=3, scheduler=plateau, validate=Batches(ArrayDataset(X, Y), 5))
    assert [round(row["lr"], 9) for row in record.history] == [0.1, 0.1, 0.01]


def test_validation_is_in_eval_mode_and_weighted_by_examples() -> None:
    model, record = run(20, validate=Batches(examples(), 30))
    assert all(module.training for module in model.modules())
    cx = lm.Graph()
    x, y = examples().arrays
    F.mse_loss(model.eval()(cx.tensor(x, name="x")), cx.tensor(y, name="y")).output("loss")
    expected = float(lm.compile(cx, "reference")()["loss"])
    # losses and weights of some steps, in float32 against float64: 80 ulp
    assert record.validation_loss == pytest.approx(expected, 1e-5)
    assert ["validation_loss" in row for row in record.history].count(True) == 2  # epoch, end


@pytest.mark.parametrize("held", ["all", "norm"])
def test_steps_are_in_training_mode_and_the_mode_stays(held: str) -> None:
    wanted = network()
    (wanted if held == "all" else [*wanted.modules()][2]).eval()
    modes = [module.training for module in wanted.modules()]
    fit(
        wanted, F.mse_loss, Batches(examples(), 8), optim.SGD(wanted.parameters(), lr=0.01),
        steps=2, progress=False,
    )  # fmt: skip
    assert [module.training for module in wanted.modules()] == modes
    moved = bool(np.any(wanted.state_dict()["1.running_mean"]))
    assert moved == (held == "all")  # a norm that alone is in eval mode is held there


def test_a_function_validates() -> None:
    _, record = linear(X, Y, steps=4, validate=lambda model: {"right": 0.5}, validate_every=3)
    assert [row.get("right") for row in record.history] == [None, None, 0.5, 0.5]
    assert record.validation_loss is None


# --- what it reports ------------------------------------------------------------------------------


def test_metrics_are_lines_of_json(tmp_path: Path) -> None:
    _, record = linear(X, Y, epochs=3, log=tmp_path / "runs/metrics.jsonl")
    path = tmp_path / "runs/metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == record.history
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["samples_per_second"] > 0 for row in rows)
    assert "tokens_per_second" not in rows[0]
    linear(X, Y, log=path)  # a new run begins a new log
    assert len(path.read_text().splitlines()) == 1


def test_statistics_are_those_of_numpy() -> None:
    _, record = linear(X, Y, steps=3, statistics=2)
    assert ["activations" in row for row in record.history] == [False, True, False]
    weight = np.zeros((3, 1)) + 0.1 * 2 * X.T @ Y / 12
    result = X @ weight + 0.2 * Y.mean()
    found = record.history[1]["activations"][""]
    expected = {"mean": result.mean(), "std": result.std(), "min": result.min(), "zeros": 0}
    # statistics of float32 in one pass, which lose three digits
    assert {name: found[name] for name in expected} == pytest.approx(expected, 1e-4)
    gradient = 2 * X.T @ (result - Y) / 12
    gradients = record.history[1]["gradients"]
    # statistics of float32 in one pass, which lose three digits
    assert gradients["weight"]["max"] == pytest.approx(gradient.max(), 1e-4)
    # statistics of float32 in one pass, which lose three digits
    assert gradients["bias"]["mean"] == pytest.approx(2 * (result - Y).mean(), 1e-4)


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    linear(X, Y, epochs=40, progress=True, clip_norm=1.0)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 20
    assert lines[0].startswith("step 2/40  loss ")
    assert "lr 0.1  norm" in lines[-1]


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=120)
    monkeypatch.setattr(progress, "Console", lambda: console)
    linear(X, Y, epochs=4, progress=True, validate=Batches(ArrayDataset(X, Y), 12))
    assert "4/4" in text.getvalue()
    assert "validation loss" in text.getvalue()


def test_a_record_is_printed_in_five_lines() -> None:
    record = linear(X, Y, epochs=3)[1]
    text = str(record)
    assert re.fullmatch(
        r"3 steps\nloss \S+ at first, \S+ at last, \S+ at best\n"
        r"learning rate \S+\n\S+ s in steps",
        text,
    )
    assert repr(record) == text
    assert str(Record(steps=3, interrupted=True, resumed=1)) == (
        "3 steps (from step 1 on), ended by Ctrl-C"
    )


# --- NaN ------------------------------------------------------------------------------------------


class Logarithm(nn.Module):
    """The log of what may be negative."""

    def forward(self, x: Any) -> Any:
        return x.log()


class Root(nn.Module):
    """A root, whose derivative at 0 is infinite."""

    def forward(self, x: Any) -> Any:
        return (x * 0).sqrt() * x


class Guarded(nn.Module):
    """A root that nobody chooses where it is NaN, before a logarithm that is read."""

    def forward(self, x: Any) -> Any:
        safe = lm.where(x > 1e9, (x.abs() * -1 - 1).sqrt(), x)
        return lm.where(x < 1e9, (safe - 100).log(), 0.0)


BROKEN = {
    "not chosen": (
        Guarded(),
        r"made by Log2? of f32\[4, 2\], log in 1 \(Guarded\) at test_fit.py:\d+: 8 of 8",
    ),
    "forward": (
        Logarithm(),
        r"made by Log2? of f32\[4, 2\], log in 1 \(Logarithm\) at test_fit.py:.* of 8",
    ),
    "backward": (
        Root(),
        r"step 1: .*first NaN is made by .*, gradient of \w+ in 1 \(Root\) at test_fit.py:",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_first_nan_and_what_recorded_it_are_named(name: str) -> None:
    layer, message = BROKEN[name]
    lm.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), layer, nn.Linear(2, 1))
    data = Batches(ArrayDataset(X[:4], Y[:4]), 4)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    before = digest(model)
    with pytest.raises(NonFiniteError, match=message) as caught:
        fit(model, F.mse_loss, data, optimizer, steps=3, detect_nan=True, progress=False)
    assert "the model is as it was before" in str(caught.value)
    assert digest(model) == before


def test_a_nan_in_a_batch_is_named() -> None:
    x = X.copy()
    x[3, 1] = np.nan
    with pytest.raises(NonFiniteError, match=r"made by Input batch\.0, .*: 1 of 36 elements"):
        linear(x, Y, detect_nan=True)


def test_a_nan_of_the_loss_is_named_by_its_line() -> None:
    def loss(y: Any, target: Any) -> Any:
        return (y * 0 - 1).log().mean() + target.mean()

    line = loss.__code__.co_firstlineno + 1
    with pytest.raises(NonFiniteError, match=rf"Log2? of .*, log at test_fit\.py:{line}: "):
        linear(X, Y, loss=loss, detect_nan=True)


def test_an_overflow_is_named_beside_its_nan() -> None:
    def loss(x: Any, y: Any) -> Any:
        big = ((x - y) * 1e30).exp()
        return (big - big).mean()

    with pytest.raises(
        NonFiniteError, match=r"infinity is made by Exp2? .*; the first NaN is made"
    ):
        linear(X, -Y, loss=loss, detect_nan=True)


def test_without_detection_there_is_one_warning(tmp_path: Path) -> None:
    x = X.copy()
    x[3, 1] = np.nan
    with pytest.warns(UserWarning, match="the loss of step 1 is nan") as caught:
        linear(x, Y, epochs=3, log=tmp_path / "log")
    assert len(caught) == 1
    assert json.loads((tmp_path / "log").read_text().splitlines()[0])["loss"] is None


def test_detection_changes_no_bit() -> None:
    assert digest(run(30)[0]) == digest(run(30, detect_nan=True)[0])


# --- what it refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["epochs", "steps", "validate_every", "checkpoint_every"])
def test_counts_are_positive(name: str) -> None:
    with pytest.raises(InputError, match=f"fit: {name}=0; it must be an int of at least 1"):
        linear(X, Y, **{name: 0})


def test_batches_losses_and_rates_of_another_form() -> None:
    with pytest.raises(InputError, match=r"of one array has no target, .* and mse_loss wants more"):
        linear(X, Y, data=Batches(ArrayDataset(X), 3))
    with pytest.raises(GraphError, match=r"the loss is .*\[12, 1\]; loss_fn"):
        linear(X, Y, loss=lambda x, y: x - y)
    two = optim.lr_scheduler.ConstantLR([0.1, 0.2])
    with pytest.raises(InputError, match="the scheduler has 2 rates, the optimizer 1 groups"):
        linear(X, Y, scheduler=two)
    model = network()
    rate = lm.Graph().tensor((), name="rate")
    optimizer = optim.SGD(model.parameters(), lr=rate)
    with pytest.raises(InputError, match=r"has the Tensor .* as its lr; give a number"):
        fit(model, F.mse_loss, Batches(examples(), 8), optimizer, progress=False)
