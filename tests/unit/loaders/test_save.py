"""Saving state_dicts: both formats read back equal, and a file is whole or as it was."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import luminal as lm
from luminal import nn
from luminal.base.errors import InputError, LoadError
from luminal.loaders.ggml.types import PLAIN
from luminal.loaders.gguf import read_gguf
from luminal.loaders.safetensors_file import DTYPES
from luminal.loaders.write_gguf import save_gguf

rng = np.random.default_rng(0)
SHAPES = [(), (1,), (3, 5), (0, 4), (2, 3, 1, 5)]


def arrays(dtypes: Any) -> dict[str, np.ndarray[Any, Any]]:
    found = {}
    for dtype in dtypes:
        for shape in SHAPES:
            values = rng.integers(0, 100, shape)
            found[f"{dtype.name}.{'x'.join(map(str, shape))}"] = values.astype(dtype)
    return found


def assert_equal(found: Any, wanted: Any) -> None:
    assert sorted(found) == sorted(wanted)
    for name, array in wanted.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        assert found[name].tobytes() == array.tobytes(), name


def test_safetensors_read_back_equal(tmp_path: Path) -> None:
    state = arrays(DTYPES.values()) | {"größe": np.ones((2, 2)).T}
    lm.save(tmp_path / "a.safetensors", state, {"format": "pt"})
    assert_equal(lm.load(tmp_path / "a.safetensors"), state)
    others = {name: array for name, array in state.items() if hasattr(np, array.dtype.name)}
    lm.save(tmp_path / "b.safetensors", others)
    assert_equal(safetensors.numpy.load_file(tmp_path / "b.safetensors"), others)
    lm.save(tmp_path / "empty.safetensors", {})
    assert lm.load(tmp_path / "empty.safetensors") == {}


def test_gguf_reads_back_equal(tmp_path: Path) -> None:
    state = arrays(PLAIN.values())
    metadata = {
        "general.architecture": "llama", "n": 3, "eps": 1e-5, "tied": True,
        "words": ["a", "ü"], "scores": [0.5, -1.0], "none": [],
    }  # fmt: skip
    lm.save_gguf(tmp_path / "a.gguf", state, metadata)
    assert_equal(lm.load(tmp_path / "a.gguf"), state)
    assert read_gguf(tmp_path / "a.gguf").metadata == metadata


@pytest.mark.parametrize(
    ("state", "metadata", "text"),
    [
        ({"a": np.ones(2, bool)}, {}, "a: bool has no place in GGUF, which takes F32, F16, BF16"),
        ({"a" * 65: np.ones(2, np.float32)}, {}, "65 bytes; GGUF names have at most 64"),
        ({"a": np.ones((1,) * 5, np.float32)}, {}, "5 dims; GGUF tensors have at most 4"),
        ({}, {"k": {}}, "metadata 'k': {} is no bool, int of 64 bits, float or string"),
        ({}, {"k": [1, "a"]}, "a list of several types"),
    ],
)
def test_gguf_refuses(tmp_path: Path, state: Any, metadata: Any, text: str) -> None:
    with pytest.raises(InputError, match=text.replace("(", "\\(")):
        save_gguf(tmp_path / "a.gguf", state, metadata)
    assert list(tmp_path.iterdir()) == []


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a: complex128 has no place in safetensors"):
        lm.save(tmp_path / "a", {"a": np.ones(2, complex)})
    with pytest.raises(InputError, match=r"Linear is no mapping .* pass model.state_dict"):
        lm.save(tmp_path / "a", nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="cannot be written: No such file"):
        lm.save(tmp_path / "none" / "a", {})
    with pytest.raises(LoadError, match="cannot be read: No such file"):
        lm.load(tmp_path / "a")
    with pytest.raises(InputError, match=r"the path comes first: lm\.save\(path, model"):
        lm.save({}, tmp_path / "a")  # type: ignore[arg-type]
    (tmp_path / "a.pt").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(LoadError, match=r"a PyTorch pickle, .* convert it once, with safetensors"):
        lm.load(tmp_path / "a.pt")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "a.safetensors"
    lm.save(path, {"a": np.zeros(3)})

    def fail(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        lm.save(path, {"a": np.ones(3)})
    monkeypatch.undo()
    assert lm.load(path)["a"].max() == 0
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_model_is_saved_over_the_file_it_was_loaded_from(tmp_path: Path) -> None:
    path, link = tmp_path / "a.safetensors", tmp_path / "link"
    lm.save(path, {"weight": np.ones((2, 3), np.float32), "bias": np.zeros(2, np.float32)})
    link.symlink_to(path)
    net = nn.Linear(3, 2)
    net.load_state_dict(lm.load(link))
    lm.save(link, net.state_dict())
    assert_equal(lm.load(path), net.state_dict())
    assert link.is_symlink()
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
