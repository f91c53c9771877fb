"""Ranks that die, leave and join: the losses of a run go on as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from luminal.base.errors import InputError
from luminal.optim import saved
from luminal.runtime.collectives import elastic, launcher, membership, start
from luminal.runtime.collectives.elastic import launch
from luminal.runtime.collectives.launcher import Ranks, Signals
from luminal.runtime.collectives.membership import Fits, Membership
from luminal.runtime.collectives.start import KILLED
from luminal.training import trainer
from tests.distributed.elastic_run import Eventful
from tests.distributed.running import Ended, needs_mpi
from tests.distributed.running import Ranks as Started
from tests.distributed.training_run import digest, network, on_threads, run, trained
from tests.long_share import mostly_long

STEPS = 6
LAUNCH = (sys.executable, "-m", "luminal", "launch")
PROGRAM = ("-m", "tests.distributed.elastic_run")


@cache
def undisturbed(steps: int = STEPS, batch: int = 16) -> tuple[list[float], str]:
    """The losses of one rank to which nothing happens, and the digest of what it trained."""
    model = network()
    data = Eventful(batch, {}, Path())
    record = run(model, None, steps=steps, leaves=4, data=data)
    return record.losses, digest(trained(model))


# --- what ranks do ----------------------------------------------------------------------------


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Membership]:
    """A membership that threads of this process are ranks of."""
    membership.join(str(tmp_path))
    yield Membership(tmp_path)
    membership.join(None)


def stopped(member: Membership, size: int, **options: Any) -> None:
    """Ranks that stop after one more step, since others are wanted."""
    member.want_change(True)
    with pytest.raises(SystemExit) as end:
        on_threads(size, steps=STEPS, leaves=4, **options)
    assert end.value.code == 0
    assert member.take_stopped()


@pytest.mark.parametrize("sizes", mostly_long([(2,), (4, 2)], 1))
def test_other_ranks_go_on_between_steps(sizes: tuple[int, ...], member: Membership) -> None:
    """Some that stop after one step more, then 1: bits and rows of a run that never stopped. What
    is cut (moments) is read from the parts of all.
    """
    for size in sizes:
        stopped(member, size, plan="zero1")
    assert member.fits() == Fits(4, 1)
    ((record, arrays),) = on_threads(1, steps=STEPS, leaves=4)
    assert record.resumed == len(sizes)
    assert (record.losses, digest(arrays)) == undisturbed()
    assert [row["step"] for row in record.history] == [*range(1, STEPS + 1)]


def _position(self: trainer.Trainer, state: Any) -> None:
    _LOAD(self, state)
    self.data.taken += 1


def _key(self: trainer.Trainer, state: Any) -> None:
    _LOAD(self, state)
    whole: Any = self._whole
    run = whole.run
    whole.run = lambda batch, number, rates: run(batch, number - 1, rates)


_LOAD = trainer.Trainer._load


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner", "name", "fault"),
    [
        (trainer.Trainer, "_load", _position),
        (trainer.Trainer, "_load", _key),
        (saved, "load_state_dict", lambda *_: None),
    ],
    ids=["position", "key", "moments"],
)
def test_what_is_not_handed_on_shows_in_the_losses(
    owner: Any, name: str, fault: Callable[..., None], member: Membership,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Planted: the next batch left out, dropout drawn for the step before, moments that begin."""
    stopped(member, 2)
    member.want_change(False)
    monkeypatch.setattr(owner, name, fault)
    record, _ = on_threads(2, steps=STEPS, leaves=4)[0]
    losses, _ = undisturbed()
    assert record.losses[:1] == losses[:1]
    # Far beyond another order of sums: equal bits are what the run without a fault has.
    assert not np.allclose(record.losses[1:], losses[1:], rtol=1e-3)


def test_ranks_that_do_not_divide_a_batch_stop_before_a_step(member: Membership) -> None:
    with pytest.raises(SystemExit):
        on_threads(3, steps=STEPS)
    assert member.take_stopped()
    assert member.fits() == Fits(16, 1)


# --- what the launcher decides ----------------------------------------------------------------


def scripted(
    monkeypatch: pytest.MonkeyPatch, *runs: tuple[int, int, bool], fits: Fits | None = None
) -> list[int]:
    """Programs that end with a status, so many dead, to go on or not; the numbers of ranks that
    were started.
    """
    counts: list[int] = []

    def run(
        count: int, program: Any, signals: Any, folder: Path, variables: Any, look: Any
    ) -> launcher.Ended:  # fmt: skip
        member = Membership(Path(variables[membership.VARIABLE]))
        status, dead, stops = runs[len(counts)]
        counts.append(count)
        if look is not None:
            look()
        if fits is not None:
            member.tell_fits(fits)
        if stops:
            member.stop()
        return launcher.Ended(status, dead)

    monkeypatch.setattr(elastic, "run", run)
    monkeypatch.setattr(Ranks, "first", lambda self: self.most)
    return counts


def test_those_that_are_left_start_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    counts = scripted(monkeypatch, (KILLED, 1, False), (KILLED, 2, False), (1, 0, False), (0, 0, 0))
    assert launch(Ranks(2, 8), ["x.py"], 3, snapshots=tmp_path) == 0
    assert counts == [8, 7, 5, 5]
    assert not [*tmp_path.iterdir()]
    counts = scripted(monkeypatch, (KILLED, 1, False), (KILLED, 1, False))
    assert launch(Ranks(2, 2), ["x.py"], 1) == KILLED
    assert counts == [2, 2]
    text = "status 137, 1 ranks are left of at least 2, and no restart is left: give more"
    assert text in capfd.readouterr().err
    counts = scripted(monkeypatch, *[(1, 0, False)] * 4)
    assert launch(Ranks(2, 8), ["x.py"], 3) == 1  # a crash that comes again and again
    assert counts == [8] * 4
    counts = scripted(monkeypatch, (0, 0, True), (KILLED, 1, True), (0, 0, False), fits=Fits(16, 1))
    assert launch(Ranks(2, 7), ["x.py"], 1) == 0
    assert counts == [7, 4, 2]
    scripted(monkeypatch, (0, 0, True), fits=Fits(16, 1))
    with pytest.raises(InputError, match=r"-n 5:7: 16 rows of a batch .* for none"):
        launch(Ranks(5, 7), ["x.py"], 1)


def test_a_file_says_how_many_there_are_to_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wish = tmp_path / "ranks"
    wish.write_text("4\n")
    counts = scripted(monkeypatch, (KILLED, 1, False), (0, 0, False))
    assert launch(Ranks(2, 8), ["x.py"], 1, wish=wish) == 0
    assert counts == [4, 4]  # the one that died is replaced
    wish.write_text("1")
    counts = scripted(monkeypatch, (0, 0, False))
    assert launch(Ranks(2, 8), ["x.py"], wish=wish) == 0
    assert counts == [8]
    assert f"{wish} says '1', which is no number of -n 2:8; it stays" in capfd.readouterr().err


def test_a_folder_of_a_launcher_that_was_killed_goes(tmp_path: Path) -> None:
    left = tmp_path / f"{start.PREFIX}left"
    left.mkdir()
    (left / "lock").touch()
    with start.opened(tmp_path) as one, start.opened(tmp_path) as other:
        assert not left.exists()
        assert one.exists()
        assert other.exists()
    assert not [*tmp_path.iterdir()]
    (tmp_path / "file").touch()
    text = r"cannot be written: .*; name another folder by"
    with pytest.raises(InputError, match=text), start.opened(tmp_path / "file"):
        pass


def test_no_program_starts_once_a_signal_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = scripted(monkeypatch, (1, 0, False))
    monkeypatch.setattr(Signals, "first", signal.SIGTERM)
    assert launch(Ranks(2, 2), ["x.py"], 3) == 1
    assert len(counts) == 1


# --- both, as users start them ----------------------------------------------------------------


def started(folder: Path, *, ranks: str = "2:4", restarts: int = 3, **settings: Any) -> Started:
    """The program on ranks, with leaves, so that bits are those of one rank."""
    options = ["-n", ranks, "--restarts", str(restarts), "--ranks-file", str(folder / "ranks")]
    settings = {"steps": STEPS, "leaves": 4, **settings}
    return Started(
        [*LAUNCH, *options, *PROGRAM, json.dumps(settings), str(folder)],
        LUMINAL_COLLECTIVE_TIMEOUT="20",
    )


def told(end: Ended) -> tuple[list[float], str]:
    """The losses and the digest that a program has printed."""
    assert end.status == 0, end
    assert not end.left, end
    lines = end.out.splitlines()
    losses = next(line.partition("losses ")[2] for line in lines if "losses " in line)
    return json.loads(losses), next(line.split()[-5] for line in lines if "digest " in line)


@needs_mpi()
@pytest.mark.long
@pytest.mark.parametrize(
    ("ranks", "settings"),
    [
        ("2", {"events": {"3": [["kill", 1]]}}),
        ("2:4", {"events": {"1": [["ranks", 4]], "3": [["kill", 0, 2]]}}),
        ("2", {"events": {"1": [["kill", 0]]}}),
        ("2", {"events": {"6": [["kill", 0]]}}),
        ("2", {"plan": "zero1", "kill_in_snapshot": 1}),
        ("2", {"plan": "zero3", "kill_in_snapshot": 2}),
        ("1:4", {"events": {"2": [["ranks", 4]], "3": [["ranks", 1]], "4": [["kill", 0]]}}),
        ("2:4", {"events": {"2": [["raise", 1]], "3": [["ranks", 4], ["kill", 1]]}}),
    ],
)  # fmt: skip
def test_losses_go_on(ranks: str, settings: dict[str, Any], tmp_path: Path) -> None:
    assert told(started(tmp_path, ranks=ranks, **settings).end(200)) == undisturbed()


@needs_mpi()
@pytest.mark.long
def test_without_leaves_losses_are_those_of_another_order_of_sums(tmp_path: Path) -> None:
    model = network()
    expected = run(model, None, steps=STEPS).losses
    events = {"2": [["ranks", 4]], "4": [["kill", 3]]}
    losses, _ = told(started(tmp_path, leaves=None, events=events).end(200))
    # Gradients of another order, which Adam divides by their own size.
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


@needs_mpi()
@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_twenty_drawn_leaves_and_joins(seed: int, tmp_path: Path) -> None:
    """Deaths of one or two, and wishes for 1 to 4 ranks, one or two of these before a step."""
    rng, steps = random.Random(seed), 14
    events: dict[str, list[list[Any]]] = {}
    for _ in range(20):
        kinds = [["ranks", rng.choice((1, 2, 4))], ["kill", 0], ["kill", rng.randrange(2), 0]]
        events.setdefault(str(rng.randint(1, steps)), []).append(rng.choice(kinds))
    end = started(tmp_path, ranks="1:4", restarts=20, steps=steps, events=events).end(590)
    assert told(end) == undisturbed(steps)
    assert end.err.count("luminal launch:") >= 5


@needs_mpi()
@pytest.mark.long
def test_a_crash_that_comes_again_ends_it(tmp_path: Path) -> None:
    """Each start raises in the first step of its own: more events than restarts."""
    events = {"2": [["raise", 1]] * 9}
    end = started(tmp_path, ranks="2", restarts=2, events=events).end(200)
    assert end.status == 1
    assert not end.left
    assert end.err.count("ZeroDivisionError: of a step") >= 3
    assert "status 1, and no restart is left: give more --restarts" in end.err


@needs_mpi()
@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_launcher_that_is_ended_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    """After a restart, so that what ends is not the first program. What a launcher leaves that was
    killed goes with the next one.
    """
    snapshots = tmp_path / "snapshots"
    options = ["-n", "2", "--restarts", "3", "--snapshots", str(snapshots)]
    settings = {"steps": 10**6, "events": {"3": [["kill", 1]]}}
    ranks = Started([*LAUNCH, *options, *PROGRAM, json.dumps(settings), str(tmp_path)])
    end = time.monotonic() + 60
    while not any(int(path.stem[5:]) > 3 for path in snapshots.glob("*/run-1/step-*.json")):
        assert time.monotonic() < end  # for steps after the restart
        time.sleep(0.1)
    os.kill(ranks.process.pid, number)
    ended = ranks.end(20)
    assert not ended.left
    assert ended.status == (-9 if number == signal.SIGKILL else 128 + number)
    assert "2 ranks start again" in ended.err
    assert len([*snapshots.iterdir()]) == (number == signal.SIGKILL)
    with start.opened(snapshots):
        assert len([*snapshots.iterdir()]) == 1
