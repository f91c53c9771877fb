"""Floats of 8 bits: every code and every way to one, against PyTorch; what is refused, and said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import luminal as lm
from luminal.base.dtypes import DType
from luminal.base.errors import DTypeError
from luminal.hlir.semantics import convert

Array = np.ndarray[Any, Any]

FLOAT8 = (lm.float8_e4m3fn, lm.float8_e5m2)
CODES = np.arange(256, dtype=np.uint8)
SOURCES = (lm.float16, lm.bfloat16, lm.float32, lm.float64, lm.int8, lm.int32, lm.int64, lm.uint64)


def by_torch(x: Array, dtype: DType) -> Array:
    """What PyTorch's cast gives of floats."""
    words = x.view(f"i{x.itemsize}") if x.itemsize < 4 else x
    tensor = torch.from_numpy(words.copy())
    if x.itemsize < 4:
        tensor = tensor.view(getattr(torch, lm.base.dtypes.dtype_of(x).name))
    cast = tensor.to(getattr(torch, dtype.name))
    return np.asarray(cast.view(torch.uint8).numpy().view(dtype.numpy))


def same(got: Array, want: Array) -> None:
    """The same bits; a NaN is a NaN."""
    assert got.dtype == want.dtype
    nan = np.isnan(want.astype(np.float32))
    assert (np.isnan(got.astype(np.float32)) == nan).all()
    bits = f"u{got.itemsize}"
    wrong = (got.view(bits) != want.view(bits)) & ~nan
    assert not wrong.any(), (got[wrong][:5], want[wrong][:5])


def every_float32(dtype: DType, stride: int) -> Array:
    """Each code's value, each middle between two neighbours, those next to all these, and every
    `stride`-th f32.
    """
    values = np.unique(CODES.view(dtype.numpy).astype(np.float32))
    values = values[np.isfinite(values)]
    ends = np.array([464, 480, 61440, 65536, 1e30, np.inf, np.nan, 1e-40], np.float32)
    points = np.concatenate([values, (values[1:] + values[:-1]) / 2, ends, -ends])
    beside = [np.nextafter(points, np.float32(to)) for to in (np.inf, -np.inf)]
    rest = np.arange(0, 2**32, stride, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.concatenate([points, *beside, rest])


def run(x: Array, to: DType, device: str) -> Array:
    """A cast as a program of its own."""
    graph = lm.Graph("cast")
    operand = graph.tensor(x.shape, dtype=x.dtype, name="x")
    operand.cast(to).output("y")
    return np.asarray(lm.compile(graph, backend=device)(x=x)["y"])


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_every_code_is_widened_as_pytorch_does(dtype: DType, device: str) -> None:
    codes = CODES.view(dtype.numpy)
    tensor = torch.from_numpy(CODES.copy()).view(getattr(torch, dtype.name))
    for wide in (lm.float32, lm.float16):
        same(run(codes, wide, device), tensor.to(getattr(torch, wide.name)).numpy())


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("source", [lm.float16, lm.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_every_short_float_is_narrowed_as_pytorch_does(
    dtype: DType, source: DType, device: str
) -> None:
    x = np.arange(65536, dtype=np.uint16).view(source.numpy)
    same(run(x, dtype, device), by_torch(x, dtype))


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_float32_is_narrowed_as_pytorch_does(dtype: DType, device: str) -> None:
    x = every_float32(dtype, 65521)
    same(run(x, dtype, device), by_torch(x, dtype))


@pytest.mark.long
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_seventeen_million_float32_are_narrowed_as_pytorch_does(dtype: DType) -> None:
    x = every_float32(dtype, 251)
    want = by_torch(x, dtype)
    same(run(x, dtype, "cpu"), want)
    same(dtype.rounded(x), want)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_wide_numbers_are_rounded_once(dtype: DType) -> None:
    values = np.unique(CODES.view(dtype.numpy).astype(np.float64))
    values = values[np.isfinite(values)]
    middle = (values[1:] + values[:-1]) / 2
    # So near to a middle that a float32 on the way would be the middle itself.
    for sign, want in ((1, values[1:]), (-1, values[:-1])):
        x = middle + sign * np.maximum(np.abs(middle), 1e-6) * 1e-14
        for device in ("reference", "cpu"):
            same(run(x, dtype, device), np.copysign(want, x).astype(dtype.numpy))


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_integers_are_rounded_and_saturate(dtype: DType) -> None:
    for source in SOURCES[4:]:
        ends = np.iinfo(source.numpy)
        x = np.array([0, 1, 15, 17, 19, 100, ends.min, ends.max], source.numpy)
        want = dtype.rounded(x.astype(np.float64))
        for device in ("reference", "cpu"):
            same(run(x, dtype, device), want)


def test_conversions_of_the_reference_go_there_and_back() -> None:
    for dtype in FLOAT8:
        codes = CODES.view(dtype.numpy)
        for wide in SOURCES[:4]:
            same(convert(convert(codes, wide), dtype), codes)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_values_are_moved(dtype: DType) -> None:
    x = np.arange(64).view("u1")[:64].reshape(8, 8).view(dtype.numpy)
    graph = lm.Graph("moved")
    operand = graph.tensor((8, 8), dtype=dtype, name="x")
    lm.cat([operand.flip(0), operand.T], 1)[:, ::3].output("y")
    got = lm.compile(graph, backend="cpu")(x=x)["y"]
    same(got, np.concatenate([x[::-1], x.T], 1)[:, ::3])


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_arithmetic_is_refused_with_the_cast_to_write(dtype: DType) -> None:
    graph = lm.Graph("refused")
    x, y = (graph.tensor((4, 4), dtype=dtype, name=name) for name in "xy")
    for compute in (
        lambda: x + y, lambda: x * 2.0, lambda: -x, lambda: x < y, lambda: x @ y, lambda: x.exp(),
        lambda: x.std(), lambda: x.sum(), lambda: x.max(), lambda: x.sort(), lambda: x.softmax(-1),
    ):  # fmt: skip
        with pytest.raises(DTypeError, match=rf"{dtype.name} holds values.*x.cast\('float32'\)"):
            compute()
    with pytest.raises(DTypeError, match=r"have no common dtype; cast one.*x.cast\('float32'\)"):
        x + graph.tensor((4, 4), name="z")


def test_arrays_of_pytorch_are_taken_and_given() -> None:
    for dtype in FLOAT8:
        tensor = torch.from_numpy(CODES.copy()).view(getattr(torch, dtype.name))
        array = lm.memory.data.array_of(tensor)
        assert array.dtype == dtype.numpy
        same(array, CODES.view(dtype.numpy))
        back = torch.from_dlpack(lm.to_dlpack(array))
        assert back.dtype == tensor.dtype
        assert torch.equal(back.view(torch.uint8), tensor.view(torch.uint8))


def test_safetensors_are_read_and_written_as_pytorch_does(tmp_path: Path) -> None:
    arrays = {dtype.name: CODES.view(dtype.numpy).reshape(16, 16) for dtype in FLOAT8}
    lm.save(tmp_path / "ours.safetensors", arrays)
    theirs = safetensors.torch.load_file(tmp_path / "ours.safetensors")
    assert {str(x.dtype) for x in theirs.values()} == {f"torch.{name}" for name in arrays}
    safetensors.torch.save_file(theirs, tmp_path / "theirs.safetensors")
    for name, array in lm.load(tmp_path / "theirs.safetensors").items():
        same(array, arrays[name])


def test_numbers_beyond_are_rounded_as_by_a_cast() -> None:
    got = lm.memory.data.array_of([500.0, -1e9, np.inf], lm.float8_e4m3fn)
    assert got.astype(np.float32).tolist() == [448, -448, 448]
    got = lm.memory.data.array_of([500.0, -1e9, np.inf], lm.float8_e5m2)
    assert got.astype(np.float32).tolist() == [512, -np.inf, np.inf]
