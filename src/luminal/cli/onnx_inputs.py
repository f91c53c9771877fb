"""Inputs for a model that a command runs: files of arrays, or random ones of its types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base.errors import InputError

if TYPE_CHECKING:
    from luminal.onnx import Model

Array = np.ndarray[Any, Any]


def load_model(path: Path) -> Model:
    """The model of a file; raises InputError where the extra is not installed."""
    try:
        from luminal import onnx
    except ModuleNotFoundError as error:
        raise InputError(f"{path}: {error}") from None
    return onnx.load(path)


def sizes(texts: Sequence[str]) -> dict[str, int]:
    """The sizes of dims by name, from texts such as `N=1`."""
    sizes_by_name = {}
    for text in texts:
        match = re.fullmatch(r"(.+)=(\d+)", text)
        if match is None:
            raise InputError(f"--dims {text!r} must have the form NAME=SIZE")
        sizes_by_name[match[1]] = int(match[2])
    return sizes_by_name


def arrays_of(
    model: Model, files: Sequence[Path], dims: Mapping[str, int], *, random: bool
) -> dict[str, Array]:
    """The model's inputs: `files` in order, then random arrays if these are wanted."""
    names = model.input_names
    if len(files) > len(names):
        raise InputError(f"{len(files)} files for the inputs {names}")
    arrays = {name: _read(path) for name, path in zip(names, files, strict=False)}
    if dims:
        _check_dims(model, arrays, dims)
    if len(arrays) == len(names):
        return arrays
    if not random:
        raise InputError(
            f"no values for {names[len(files) :]}: give --input FILE.npy for each, or --random"
        )
    # The same arrays in each run, so that outputs of two backends or two versions can be compared.
    draw = np.random.default_rng(0)
    for name in names[len(files) :]:
        arrays[name] = _drawn(draw, name, *model.declared(name), dims)
    return arrays


def _check_dims(model: Model, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> None:
    """Raises InputError for a size of a dim that no input has, or that a given array has not."""
    shapes = {name: model.declared(name)[1] or [] for name in model.input_names}
    open_dims = sorted({n for shape in shapes.values() for n in shape if isinstance(n, str)})
    for dim, size in dims.items():
        if dim not in open_dims:
            has = f"the open dims are {', '.join(open_dims)}" if open_dims else "no dim is open"
            raise InputError(f"--dims {dim}={size}: there is no such dim; {has}")
        for name, array in arrays.items():
            for n, extent in zip(shapes[name], array.shape, strict=False):
                if n == dim and extent != size:
                    raise InputError(f"--dims {dim}={size}: {name} has {extent}; leave it out")


def _read(path: Path) -> Array:
    try:
        with path.open("rb") as file:
            # A pickle in a .npy runs code when it is read, and no input of a model needs one.
            return np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise InputError(f"--input {path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"--input {path}: takes a .npy file with one array: {error}") from None


def _drawn(
    draw: np.random.Generator,
    name: str,
    dtype: np.dtype[Any],
    shape: Sequence[int | str] | None,
    dims: Mapping[str, int],
) -> Array:
    """Normal floats; integers and bools of 0 and 1, which are indices of most tables."""
    if shape is None:
        raise InputError(f"{name}: its rank is open; give --input FILE.npy")
    missing = [n for n in shape if isinstance(n, str) and n not in dims]
    if missing:
        wanted = " ".join(f"--dims {n}=SIZE" for n in missing)
        raise InputError(f"{name}: the dims {', '.join(missing)} are open; give {wanted}")
    extents = [dims[n] if isinstance(n, str) else n for n in shape]
    try:
        if dtype.kind in "biu":
            return draw.integers(0, 2, extents).astype(dtype)
        return draw.standard_normal(extents).astype(dtype)
    except (MemoryError, ValueError, OverflowError):
        raise InputError(f"{name}: there is no memory for an array of {extents}") from None
