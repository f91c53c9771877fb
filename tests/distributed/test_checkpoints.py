"""Checkpoints that ranks write together: read by other meshes, whole or not there at all."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError, LoadError
from luminal.distributed import run_local
from luminal.loaders import write_safetensors
from luminal.loaders.safetensors_file import read_metadata, read_safetensors
from luminal.loaders.write_safetensors import save_safetensors
from luminal.memory.part import Piece
from luminal.memory.stored import Stored
from luminal.training import CheckpointManager, checkpoint_parts
from tests.distributed.training_run import digest, network, on_threads, run, trained


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of 4 ranks, cut as "zero3" has it, that ended after 3 steps."""
    folder = tmp_path_factory.mktemp("begun")
    on_threads(4, steps=3, plan="zero3", checkpoint=folder)
    return folder


def copied(begun: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    shutil.copytree(begun, folder)
    return folder


def test_each_rank_writes_its_parts(begun: Path) -> None:
    files = sorted(begun.glob("*.safetensors"))
    assert [file.stem[-6:] for file in files] == [f"{rank}-of-4" for rank in range(4)]
    parts = [read_safetensors(file)["model.0.weight"] for file in files]
    assert [part.shape for part in parts] == [(4, 6)] * 4
    places = json.loads(read_metadata(files[2])["parts"])["model.0.weight"]
    assert places == {"shape": [16, 6], "start": [8, 0]}
    # What is whole is written by the first rank.
    assert ["model.4.bias" in read_safetensors(file) for file in files] == [True] + [False] * 3


@pytest.mark.long
def test_a_run_goes_on_in_the_same_bits_on_the_same_mesh(begun: Path, tmp_path: Path) -> None:
    expected = on_threads(4, plan="zero3")[0][1]
    results = on_threads(4, plan="zero3", checkpoint=copied(begun, tmp_path))
    assert [record.resumed for record, _ in results] == [3] * 4
    assert digest(results[0][1]) == digest(expected)


@pytest.mark.parametrize(
    "case", [(2, "zero1"), (1, "data"), (8, "zero3"), (2, "data"), (4, "zero1")]
)
def test_any_mesh_goes_on(begun: Path, tmp_path: Path, case: tuple[int, str]) -> None:
    """With no step to take every rank has what the four had, also of the moments."""
    size, plan = case
    folder = copied(begun, tmp_path)
    four = CheckpointManager(folder).restore()
    assert four is not None
    results = on_threads(size, steps=3, plan=plan, checkpoint=folder)
    for record, arrays in results:
        assert record.resumed == 3
        for path, array in arrays.items():
            assert array.tobytes() == four.state["model"][path].tobytes()


@pytest.mark.long
@pytest.mark.parametrize("case", [(2, "zero1"), (1, "data"), (8, "zero3")])
def test_moments_go_on_too(begun: Path, tmp_path: Path, case: tuple[int, str]) -> None:
    size, plan = case
    folder, other = copied(begun, tmp_path), copied(begun, tmp_path / "other")
    after = on_threads(size, steps=4, plan=plan, checkpoint=folder)[0][1]
    expected = on_threads(4, steps=4, plan="zero3", checkpoint=other)[0][1]
    for path, array in after.items():
        # A step's sums over other numbers of ranks, divided by their own size.
        np.testing.assert_allclose(array, expected[path], rtol=1e-3, atol=1e-5)  # see above


@pytest.mark.long
def test_one_rank_without_a_mesh_goes_on_and_writes_as_ever(begun: Path, tmp_path: Path) -> None:
    folder = copied(begun, tmp_path)
    model = network()
    record = run(model, None, steps=4, checkpoint=CheckpointManager(folder, keep_last=1))
    assert record.resumed == 3
    assert len([*folder.iterdir()]) == 2
    # And a mesh goes on from what one rank wrote.
    results = on_threads(2, steps=4, plan="zero3", checkpoint=folder)
    assert results[0][0].resumed == 4
    assert digest(results[0][1]) == digest(trained(model))


def test_a_rank_reads_its_part_only(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    get = Stored.__getitem__

    def counting(self: Stored, places: Any) -> Any:
        out = get(self, places)
        read.append(out.size)
        return out

    monkeypatch.setattr(Stored, "__getitem__", counting)
    monkeypatch.setattr(Stored, "__array__", None)
    stored = checkpoint_parts.read(begun, _files(begun), 0, 1)["model.0.weight"]
    part = stored[slice(6, 10), slice(1, 3)]  # over an edge of two files
    assert part.shape == (4, 2)
    assert read == [8]


def _files(folder: Path) -> list[dict[str, str]]:
    files: list[dict[str, str]] = json.loads(next(folder.glob("*.json")).read_text())["files"]
    return files


@pytest.mark.parametrize("damage", ["start", "missing", "bytes"])
def test_parts_that_do_not_fit_are_no_checkpoint(
    begun: Path, tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(begun, tmp_path)
    path = sorted(folder.glob("*.safetensors"))[2]
    if damage == "missing":
        path.unlink()
        text = "cannot be read"
    elif damage == "bytes":
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        text = "damaged: its digest"
    else:  # as a rank would write that takes itself for another one
        places = json.loads(read_metadata(path)["parts"])
        places["model.0.weight"]["start"] = [4, 0]
        save_safetensors(path, read_safetensors(path), {"parts": json.dumps(places)})
        monkeypatch.setattr(
            checkpoint_parts, "digest_of_file",
            lambda path: next(f["digest"] for f in _files(folder) if f["name"] == path.name),
        )  # fmt: skip
        text = r"model.0.weight has the shape \(16, 6\), and its parts are"
    with pytest.warns(UserWarning, match=text):
        assert CheckpointManager(folder).restore() is None
    with pytest.raises(LoadError, match=text):
        CheckpointManager(folder).restore(3)


def test_a_full_disk_on_one_rank_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, write = CheckpointManager(tmp_path), write_safetensors.save_safetensors

    def state(rank: int) -> dict[str, Any]:
        return {"w": Piece(np.full((2, 3), rank), (4, 3), (2 * rank, 0), True), "step": 1}

    run_local(2, lambda engine: manager.save(1, state(engine.rank), engine=engine), timeout=20)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(path: Path, arrays: Any, metadata: Any = None) -> None:
        if "-1-of-2" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, arrays, metadata)

    monkeypatch.setattr(checkpoint_parts, "save_safetensors", full)

    def work(engine: Any) -> str:
        with pytest.raises(InputError) as failure:
            manager.save(2, state(engine.rank), engine=engine)
        return str(failure.value)

    for text in run_local(2, work, timeout=20):
        assert "cannot be written on rank 1: No space left on device; the checkpoints bef" in text
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    restored = manager.restore()
    assert restored is not None
    assert np.array_equal(restored.state["w"], np.repeat([0, 1], 2)[:, None].repeat(3, 1))


def test_what_is_cut_is_not_saved_by_one_rank(tmp_path: Path) -> None:
    piece = Piece(np.zeros(2), (4,), (0,), True)
    with pytest.raises(InputError, match="w is cut over a mesh; all ranks save it together"):
        CheckpointManager(tmp_path).save(1, {"w": piece})


@pytest.mark.long
def test_ranks_with_the_same_part_write_it_once(tmp_path: Path) -> None:
    mesh = lm.Mesh((2, 2), ("data", "tensor"))
    plan = {"0.weight": ("tensor", None)}
    on_threads(4, mesh=mesh, plan=plan, steps=1, checkpoint=tmp_path)
    holders = [
        file
        for file in tmp_path.glob("*.safetensors")
        if "model.0.weight" in read_safetensors(file)
    ]
    assert len(holders) == 2
