"""safetensors files: what the library writes is read back without a copy; damage is named."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import luminal as lm
from luminal.base.errors import InputError, LoadError
from luminal.loaders.json_file import MAX_BYTES
from luminal.loaders.safetensors_file import MAX_HEADER, read_safetensors, read_sharded


def write(path: Path, header: Any, data: bytes = b"") -> Path:
    """A file with any header, padded to 8 bytes as the library does."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_every_dtype_comes_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    dtypes = "? u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8".split()
    tensors = {name: rng.integers(0, 2, (3, 5)).astype(name) for name in dtypes}
    tensors |= {"scalar": np.array(3.5, np.float32), "empty": np.zeros((0, 4), np.float32)}
    save_file(tensors, tmp_path / "m.safetensors")
    back = read_safetensors(tmp_path / "m.safetensors")
    assert back.keys() == tensors.keys()
    for name, expected in tensors.items():
        assert back[name].dtype == expected.dtype
        np.testing.assert_array_equal(back[name], expected, strict=True)
        assert not back[name].flags.writeable


def test_bfloat16_is_ml_dtypes(tmp_path: Path) -> None:
    values = np.array([1.5, -2.0, np.inf], ml_dtypes.bfloat16)
    path = write(tmp_path / "m.safetensors", {"a": entry("BF16", [3], 0, 6)}, values.tobytes())
    back = read_safetensors(path)["a"]
    assert back.dtype == ml_dtypes.bfloat16
    assert back.tobytes() == values.tobytes()
    assert not back.flags.owndata


def test_an_unaligned_tensor_is_copied(tmp_path: Path) -> None:
    header = {"a": entry("U8", [1], 0, 1), "b": entry("F32", [2], 1, 9)}
    data = b"\x07" + np.array([1, 2], "<f4").tobytes()
    back = read_safetensors(write(tmp_path / "m.safetensors", header, data))["b"]
    assert back.flags.aligned
    assert not back.flags.writeable
    assert back.tolist() == [1, 2]


def test_a_file_of_nothing_but_a_header(tmp_path: Path) -> None:
    assert read_safetensors(write(tmp_path / "m", {})) == {}
    assert read_safetensors(write(tmp_path / "m", {"__metadata__": {"format": "pt"}})) == {}


def test_as_many_dims_and_bytes_as_an_array_has(tmp_path: Path) -> None:
    ones = write(tmp_path / "m", {"a": entry("U8", [1] * 64, 0, 1)}, b"\7")
    assert read_safetensors(ones)["a"].shape == (1,) * 64
    large = [2**32, 2**31 - 1, 0]
    empty = write(tmp_path / "m", {"a": entry("U8", large, 0, 0)})
    assert read_safetensors(empty)["a"].shape == tuple(large)
    write(tmp_path / "m", {"a": entry("U8", [2**32, 2**31, 0], 0, 0)})
    with pytest.raises(LoadError, match=r"no memory holds the shape \[4294967296, 2147483648, 0\]"):
        read_safetensors(tmp_path / "m")


DAMAGE = [
    ({"a": entry("F32", [2], 0, 8)}, bytes(4), "truncated: tensor 'a' ends at byte"),
    ({"a": entry("F32", [2], 0, 4)}, bytes(4), r"'a': F32 \[2\] takes 8 bytes, the header gives 4"),
    ({"a": entry("F4", [2], 0, 1)}, bytes(1), "dtype 'F4' is not supported; supported are BOOL"),
    ({"a": entry("F32", [-1], 0, 4)}, bytes(4), r"shape \[-1\] .* must be integers >= 0"),
    ({"a": entry("F32", [], 0, 4), "b": entry("F32", [], 0, 4)}, bytes(4), "'b' overlaps 'a'"),
    ({"a": entry("U8", [1], 1, 2)}, bytes(2), "1 unused bytes before 'a'"),
    ({"a": entry("U8", [1], 0, 1)}, bytes(4), "3 unused bytes after 'a'"),
    ({"a": {"dtype": "F32"}}, b"", "'a': the header entry needs dtype, shape and two data_offsets"),
    ({"a": 3}, b"", "'a': the header entry needs"),
    ([1], b"", "the header must begin with {"),
    (b"{...", b"", "the header: not JSON: Expecting"),
    (b"\xff\xfe\x00", b"", "the header must begin with {"),
    (b"{\xff\xfe", b"", "the header: not JSON: .utf-8. codec"),
    (b'{"a":' + b"[" * 10**5, b"", "the header: not JSON of a model: lists or objects nest too"),
]


@pytest.mark.parametrize(("header", "data", "message"), DAMAGE)
def test_damage_is_named(tmp_path: Path, header: Any, data: bytes, message: str) -> None:
    path = write(tmp_path / "m.safetensors", header, data)
    with pytest.raises(LoadError, match=rf"m\.safetensors: .*{message}"):
        read_safetensors(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"abc", "truncated: 3 bytes"),
        (b"\xff" * 8, "truncated or not a safetensors file: its header ends at byte 184467440737"),
    ],
)
def test_a_file_without_a_header(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(LoadError, match=message):
        read_safetensors(tmp_path / "m")


def test_an_endless_header_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "m").open("wb") as file:
        file.write((MAX_HEADER + 1).to_bytes(8, "little") + b"{")
        file.truncate(8 + MAX_HEADER + 1)
    with pytest.raises(LoadError, match=r"must begin with \{ and have at most 16000000 "):
        read_safetensors(tmp_path / "m")


@pytest.mark.timeout(5)
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m")
    with pytest.raises(LoadError, match="m: is a FIFO, it must be a regular file"):
        read_safetensors(tmp_path / "m")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"none\.safetensors: cannot be read: No such file"):
        read_safetensors(tmp_path / "none.safetensors")


def test_shards(tmp_path: Path) -> None:
    a, b = np.arange(3, dtype=np.float32), np.arange(4, dtype=np.float32)
    save_file({"a": a}, tmp_path / "1.safetensors")
    save_file({"b": b}, tmp_path / "2.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}))
    back = read_sharded(index)
    np.testing.assert_array_equal(back["a"], a)
    np.testing.assert_array_equal(back["b"], b)

    index.write_text(json.dumps({"weight_map": {"a": "2.safetensors"}}))
    with pytest.raises(LoadError, match=r"tensor 'a' is not in 2\.safetensors, as it says"):
        read_sharded(index)
    index.write_text(json.dumps({"weight_map": {"a": "3.safetensors"}}))
    with pytest.raises(LoadError, match=r"3\.safetensors: cannot be read"):
        read_sharded(index)
    index.write_text("{}")
    with pytest.raises(
        LoadError, match="no weight_map of tensor names to names of files beside it"
    ):
        read_sharded(index)


def test_an_index_names_files_beside_it(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    for names in (["m", "../m"], ["m", 3], ["x" * 256], ["a\nb"]):
        index.write_text(json.dumps({"weight_map": dict(enumerate(names))}))
        with pytest.raises(LoadError, match="no weight_map of tensor names to names of files"):
            read_sharded(index)
    index.write_text(json.dumps({"weight_map": {c: c for c in "hgfedcba"}}))
    with pytest.raises(LoadError, match="a: cannot be read: No such file"):  # the first by name
        read_sharded(index)
    index.write_text(json.dumps({"weight_map": {"a": "x" * 255}}))
    with pytest.raises(LoadError, match="cannot be read: No such file"):
        read_sharded(index)


def test_an_endless_index_is_not_read(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    with index.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(LoadError, match=r"index\.json: more than 100000000 bytes"):
        read_sharded(index)


@pytest.mark.parametrize("name", [1, None, b"a", "\ud800", "__metadata__"])
def test_names_that_no_file_holds_are_refused(name: Any, tmp_path: Path) -> None:
    shown = name if name == "__metadata__" else repr(name)
    for state in ({name: np.zeros(2)}, {"b": np.zeros(2), name: np.zeros(2)}):
        with pytest.raises(InputError, match=re.escape(shown)):
            lm.save(tmp_path / "m.safetensors", state)
        assert not [*tmp_path.iterdir()]
