"""Checkpoints: exact round trips, what is kept, damage and full disks."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from luminal.base.errors import InputError, LoadError
from luminal.training import CheckpointManager
from luminal.training.checkpoint import _digest
from luminal.training.nested import join, split

STATE: dict[str, Any] = {
    "model": {"layers.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3)},
    "optimizer": {"state": {0: {"step": 3, "m": np.ones(2, np.float64)}, 1: {}}, "groups": [1, 2]},
    "betas": (0.9, np.float32(0.1)),
    "key": np.array([1, 2**32 - 1], np.uint32),
    "half": np.array(1.5, ml_dtypes.bfloat16),
    "none": None,
    "nan": float("nan"),
    "yes": True,
    "big": 2**100,
    "$array": "a text",
    "text": "ä\n",
}


def same(a: Any, b: Any) -> bool:
    """Of the same types, to the bit."""
    if type(a) is not type(b) and not isinstance(a, np.generic):
        return False
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)


def test_states_come_back_of_the_same_types_to_the_bit(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path / "runs/a")
    assert manager.latest() is None
    assert manager.restore() is None
    path = manager.save(7, STATE, metric=0.1)
    found = CheckpointManager(tmp_path / "runs/a").restore()
    assert found is not None
    assert (found.step, found.metric) == (7, 0.1)
    assert same(STATE, found.state)
    assert json.loads(path.read_text())["step"] == 7
    assert all(array.flags.writeable for array in found.state["model"].values())


def test_names_that_would_meet_stay_apart() -> None:
    state = {"a": {"b": np.zeros(1), 0: np.zeros(2), "0": np.zeros(3)}, "a.b": np.zeros(4)}
    assert same(state, join(*split(state)))


def test_what_cannot_be_stored_is_named() -> None:
    with pytest.raises(InputError, match=r"checkpoint: a\.1 is a set; it stores dicts, lists"):
        split({"a": [1, {2}]})
    with pytest.raises(InputError, match="checkpoint: a is a dict"):
        split({"a": {1.5: 2}})


def test_the_last_ones_and_the_best_are_kept(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, keep_last=2, keep_best=1)
    for step, metric in enumerate([5, 1, 3, float("nan"), 2, None]):
        manager.save(step, {"x": np.full(3, step)}, metric)
    assert manager.steps() == [1, 4, 5]
    assert (manager.latest(), manager.best()) == (5, 1)
    assert len([*tmp_path.iterdir()]) == 6
    found = manager.restore(1)
    assert found is not None
    assert found.state["x"].tolist() == [1, 1, 1]
    with pytest.raises(LoadError, match=r"step-000000002\.json: cannot be read"):
        manager.restore(2)
    highest = CheckpointManager(tmp_path, best="max")
    assert highest.best() == 4


def test_a_run_that_went_back_keeps_what_it_saves(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, keep_last=1, keep_best=0)
    manager.save(20, {"x": 20})
    manager.save(10, {"x": 10})
    assert manager.steps() == [10]


def test_a_step_saved_again_is_replaced(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    manager.save(3, {"x": np.zeros(2)})
    manager.save(3, {"x": np.ones(2)})
    found = manager.restore()
    assert found is not None
    assert found.state["x"].tolist() == [1, 1]
    assert len([*tmp_path.iterdir()]) == 2


def test_options(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="keep_last=0"):
        CheckpointManager(tmp_path, keep_last=0)
    with pytest.raises(InputError, match="best='least'"):
        CheckpointManager(tmp_path, best="least")


# --- damage ---------------------------------------------------------------------------------------


def two(folder: Path) -> tuple[CheckpointManager, list[Path]]:
    """A manager with steps 1 and 2, and the files of the second."""
    manager = CheckpointManager(folder)
    for step in (1, 2):
        manager.save(step, {"step": step, "x": np.full(100, step)})
    return manager, sorted(folder.glob("step-000000002*"))


ARRAYS, JSON = 0, 1


@pytest.mark.parametrize(
    ("which", "damage"),
    [
        *((ARRAYS, damage) for damage in ("cut", "empty", "gone", "flipped")),
        *((JSON, damage) for damage in ("cut", "empty", "flipped")),
    ],
)
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, which: int, damage: str) -> None:
    manager, files = two(tmp_path)
    path = files[which]
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "flipped":  # a digit of a number: JSON as before, or an element
        place = data.rindex(b"2") if which == JSON else len(data) - 8
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    else:
        path.write_bytes(data[: len(data) // 2 if damage == "cut" else 0])
    with pytest.warns(UserWarning, match=r"step-000000002.*; the checkpoint before it is used"):
        found = manager.restore()
    assert found is not None
    assert (found.step, found.state["step"]) == (1, 1)
    with pytest.raises(LoadError):
        manager.restore(2)


def test_what_a_crash_left_is_no_checkpoint_and_is_removed(tmp_path: Path) -> None:
    manager, _ = two(tmp_path)
    (tmp_path / ".step-000000003.json.abcd0123.tmp").write_bytes(b"{")
    (tmp_path / "step-000000003-00000000.safetensors").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    assert manager.latest() == 2
    manager.save(4, {})
    names = sorted(path.name for path in tmp_path.iterdir() if "000003" in path.name)
    assert names == []
    assert (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupt_around_the_last_rename_leaves_a_whole_checkpoint_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    manager, _ = two(tmp_path)
    replace = os.replace

    def interrupted(source: Path, target: Path) -> None:
        if target.suffix != ".json" or moment == "after":
            replace(source, target)
        if target.suffix == ".json":
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        manager.save(3, STATE)
    found = manager.restore()  # a warning would be an error here
    assert found is not None
    assert found.step == (3 if moment == "after" else 2)
    assert len([*tmp_path.iterdir()]) == (6 if moment == "after" else 4)


@pytest.mark.parametrize(
    "state",
    [{"$array": "nope"}, {"$array": 3}, {"$array": {}}, {"$pairs": [[1]]}, {"$tuple": 1}],
    ids=str,
)
def test_a_sound_digest_of_something_else_is_a_damaged_checkpoint(
    tmp_path: Path, state: Any
) -> None:
    manager, files = two(tmp_path)
    content = json.loads(files[JSON].read_text())
    content["state"]["other"] = state
    del content["digest"]
    files[JSON].write_text(json.dumps({"digest": _digest(content), **content}))
    with pytest.raises(LoadError, match=r"step-000000002\.json: not what a CheckpointManager wr"):
        manager.restore(2)


@pytest.mark.parametrize("room", [0, 500, 10_000, 41_000], ids=lambda n: f"{n}-bytes")
def test_a_full_disk_loses_nothing(tmp_path: Path, room: int) -> None:
    manager, _ = two(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    state = {"x": np.zeros(5000), "text": "t" * 50_000}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(InputError, match=r"the checkpoint of step 3 cannot be written: File"):
            manager.save(3, state)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    manager.save(3, state)
    assert manager.latest() == 3


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="step 1 cannot be written: "):
        CheckpointManager(tmp_path / "file/runs").save(1, {})
