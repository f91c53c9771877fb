"""Runs that are stopped or killed and go on end in the same bits as one that never was."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.base.errors import InputError, LoadError
from luminal.nn import functional as F
from luminal.training import Batches, CheckpointManager, checkpoint, fit
from tests.backends.c_family.present import present
from tests.long_share import mostly_long
from tests.training.small_run import STEPS, digest, examples, moved, network, run

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60


@pytest.fixture(scope="module")
def undisturbed() -> str:
    """The digest of the run that nobody stops."""
    return digest(run()[0])


@pytest.mark.long
def test_the_same_seed_gives_the_same_bits_and_another_one_others(undisturbed: str) -> None:
    assert digest(run()[0]) == undisturbed
    assert digest(run(seed=10)[0]) != undisturbed
    assert digest(run(STEPS - 1)[0]) != undisturbed


@pytest.mark.parametrize("stop", mostly_long([12, 1, 59], 1))
def test_a_run_that_was_stopped_goes_on(tmp_path: Path, undisturbed: str, stop: int) -> None:
    options: dict[str, Any] = {"checkpoint": tmp_path, "log": tmp_path / "log.jsonl"}
    first = run(stop, **options)[1]
    assert (first.steps, first.resumed) == (stop, 0)
    model, record = run(**options)
    assert (record.steps, record.resumed) == (STEPS, stop)
    assert [row["step"] for row in record.history] == list(range(1, STEPS + 1))
    assert digest(model) == undisturbed
    model, record = run(**options)  # nothing is left to do
    assert (record.resumed, digest(model)) == (STEPS, undisturbed)


@pytest.mark.long
@pytest.mark.parametrize("device", present())
def test_a_run_goes_on_elsewhere(tmp_path: Path, device: str) -> None:
    moved(tmp_path / "to", "cpu", device)
    moved(tmp_path / "from", device, "cpu")


@pytest.mark.long
def test_a_scaled_and_accumulated_run_goes_on(tmp_path: Path) -> None:
    options: dict[str, Any] = {"amp": "float16", "accumulate": 3}
    whole = run(9, **options)[0]
    run(4, checkpoint=tmp_path, **options)
    model, record = run(9, checkpoint=tmp_path, **options)
    assert (record.resumed, digest(model)) == (4, digest(whole))


def test_without_resume_a_run_begins_anew(tmp_path: Path, undisturbed: str) -> None:
    run(20, checkpoint=tmp_path)
    model, record = run(checkpoint=tmp_path, resume=False)
    assert (record.resumed, digest(model)) == (0, undisturbed)


class Scaled(nn.Module):
    """A loss with a Parameter that is trained, and a running mean."""

    def __init__(self) -> None:
        self.scale = lm.Parameter([0.5])
        self.seen = lm.State((), init=0.0, name="seen")

    def forward(self, y: lm.Tensor, wanted: lm.Tensor) -> lm.Tensor:
        loss = F.mse_loss(y, wanted)
        seen = y.graph.read(self.seen)
        y.graph.assign(self.seen, 0.9 * seen + 0.1 * loss.detach())
        scale = self.read(self.scale, y)
        return (loss * (-scale).exp() + scale).sum() + 0.01 * seen * loss


def with_its_own_loss(steps: int, folder: Path | None = None) -> list[bytes]:
    """All that such a run changes; one Parameter of its optimizer belongs to nothing else."""
    model, loss, outside = network(), Scaled(), lm.Parameter([2.0])

    def loss_fn(y: lm.Tensor, wanted: lm.Tensor) -> lm.Tensor:
        return loss(y * outside, wanted)

    whole = nn.Module()
    whole.loss = loss
    whole.forward = loss_fn  # type: ignore[method-assign]
    optimizer = optim.AdamW([*model.parameters(), *loss.parameters(), outside], lr=0.01)
    data = Batches(examples(), 8)
    fit(model, whole, data, optimizer, steps=steps, checkpoint=folder, progress=False)
    return [
        *(x.tobytes() for x in model.state_dict().values()),
        *(held.numpy().tobytes() for held in (loss.scale, loss.seen, outside)),
    ]


def test_what_is_trained_outside_of_the_model_goes_on_too(tmp_path: Path) -> None:
    whole = with_its_own_loss(9)
    with_its_own_loss(4, tmp_path)
    assert with_its_own_loss(9, tmp_path) == whole


@pytest.mark.parametrize("part", mostly_long(["model", "seed", "optimizer", "scheduler"], 2))
def test_another_run_is_not_gone_on_with_and_nothing_changes(tmp_path: Path, part: str) -> None:
    run(2, checkpoint=tmp_path)
    model = network()
    parameters = [*model.parameters()]
    data, options = Batches(examples(), 8, seed=5, drop_last=True), {"seed": 9}
    optimizer: optim.Optimizer = optim.AdamW(parameters, lr=0.01)
    scheduler: Any = optim.lr_scheduler.CosineAnnealingLR(0.01, STEPS)
    if part == "model":
        model = nn.Sequential(*network(), nn.Linear(1, 1))
        wanted = "the state_dict does not fit"
    elif part == "optimizer":
        optimizer, wanted = optim.SGD(parameters, lr=0.01), "SGD: .*: the state_dict has step"
    elif part == "scheduler":
        scheduler = optim.lr_scheduler.ReduceLROnPlateau(0.01)
        wanted = "ReduceLROnPlateau: the state_dict has no 'num_bad_epochs'; it has"
    else:
        options, wanted = {"seed": 8}, "of a run with seed 9, this one has 8"
    before, place = digest(model), data.state_dict()
    with pytest.raises((InputError, LoadError), match=wanted):
        fit(
            model, F.mse_loss, data, optimizer, steps=3, checkpoint=tmp_path, progress=False,
            scheduler=scheduler, validate=Batches(examples(), 30), **options,
        )  # fmt: skip
    assert (digest(model), data.state_dict(), optimizer.state) == (before, place, {})


# --- kill -9 --------------------------------------------------------------------------------------


def started(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.training.small_run", str(folder)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})


def killed(folder: Path, least: int, delay: float) -> int:
    """Starts the run, and kills it `delay` seconds after step `least`; the newest step after it."""
    process, manager = started(folder), CheckpointManager(folder)
    end = time.monotonic() + SECONDS
    while (manager.latest() or 0) < least and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.001)
    time.sleep(delay)
    process.kill()
    process.wait()
    return manager.latest() or 0


def went_on(folder: Path) -> str:
    assert started(folder).wait(SECONDS) == 0
    return (folder / "done").read_text()


@pytest.mark.long
def test_kill_9_at_random_moments(tmp_path: Path, undisturbed: str) -> None:
    draw = random.Random(0)
    reached = [killed(tmp_path, least, draw.uniform(0, 0.01)) for least in (1, 30)]
    assert reached == sorted(reached)
    assert 1 <= reached[0] < STEPS
    assert went_on(tmp_path) == undisturbed


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_kill_9_at_many_random_moments(tmp_path: Path, undisturbed: str, seed: int) -> None:
    draw = random.Random(seed)
    killed(tmp_path, 0, draw.uniform(0, 2))  # also before the first step
    killed(tmp_path, draw.randrange(1, STEPS), draw.uniform(0, 0.02))
    assert went_on(tmp_path) == undisturbed


# --- full disks -----------------------------------------------------------------------------------


class Full:
    """A disk without room while `steps` are saved: half of the arrays is written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: range) -> None:
        self._save, self._steps = checkpoint.save_safetensors, steps
        monkeypatch.setattr(checkpoint, "save_safetensors", self)

    def __call__(self, path: Path, arrays: Any) -> None:
        number = int(path.name.split("-")[1])
        if number in self._steps:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._save(path, arrays)


def test_a_full_disk_on_the_way_is_a_warning(
    tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Full(monkeypatch, range(25, 35))
    with pytest.warns(UserWarning, match="step 30 cannot be written: No space left") as caught:
        model, _ = run(checkpoint=tmp_path, checkpoint_every=10)
    assert len(caught) == 1
    assert digest(model) == undisturbed
    assert CheckpointManager(tmp_path).steps() == [40, 50, 60]


def test_a_full_disk_at_the_end_is_an_error_that_a_resume_makes_good(
    tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        Full(patched, range(STEPS, STEPS + 1))
        with pytest.raises(InputError, match="step 60 cannot be written: No space left"):
            run(checkpoint=tmp_path, checkpoint_every=25)
    assert CheckpointManager(tmp_path).steps() == [25, 50]
    model, record = run(checkpoint=tmp_path)
    assert (record.resumed, digest(model)) == (50, undisturbed)


# --- Ctrl-C ---------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _pythons_own_handler() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, whatever a test before made of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_control_c_ends_after_the_step_with_a_checkpoint(tmp_path: Path, undisturbed: str) -> None:
    calls = 0

    def press(model: object) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls == 30:
            signal.raise_signal(signal.SIGINT)
        return {}

    before = signal.getsignal(signal.SIGINT)
    _, record = run(checkpoint=tmp_path, validate=press, validate_every=1)
    assert (record.interrupted, record.steps) == (True, 30)
    assert signal.getsignal(signal.SIGINT) is before
    model, record = run(checkpoint=tmp_path)
    assert (record.interrupted, record.resumed) == (False, 30)
    assert digest(model) == undisturbed


def test_a_second_control_c_does_not_wait(tmp_path: Path) -> None:
    def press(model: object) -> dict[str, float]:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return {}

    with pytest.raises(KeyboardInterrupt):
        run(validate=press, validate_every=1)


def test_the_log_of_a_killed_run_is_cut_to_the_checkpoint(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    run(10, checkpoint=tmp_path, log=log)
    with log.open("ab") as file:
        file.write(b'{"step": 11, "loss": 5}\n{"step": 12, "lo')
    run(13, checkpoint=tmp_path, log=log)
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 14))
    assert rows[10]["loss"] != 5


def test_the_best_checkpoint_is_one_that_was_validated(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, keep_last=50)
    held = Batches(examples(), 50)
    _, record = run(40, checkpoint=manager, checkpoint_every=5, validate=held, validate_every=10)
    found = {row["step"]: row.get("validation_loss") for row in record.history}
    validated = [step for step, loss in found.items() if loss is not None]
    assert validated == [10, 20, 30, 40]
    assert manager.best() == min(validated, key=lambda step: float(found[step] or np.inf))
