"""The files of a checkpoint that several ranks write, each its own parts, and any mesh reads.

`step-N-X-R-of-P.safetensors` is what rank R of P has to write: its part of what is cut, and the
first rank also what is whole. The metadata say of which shape the whole is, and where each part
begins in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base.errors import InputError, LoadError
from luminal.loaders.json_file import parse_object
from luminal.loaders.mapped import Array, open_file
from luminal.loaders.safetensors_file import read_metadata, read_safetensors
from luminal.loaders.write_safetensors import save_safetensors
from luminal.memory.mapped_pages import let_go
from luminal.memory.part import Piece
from luminal.memory.stored import Block, Stored

if TYPE_CHECKING:
    from luminal.runtime.collectives.engine import Engine

File = dict[str, str]
"""A file's "name" and "digest"."""
BLOCK = 1 << 20  # bytes that are read at once
PARTS = "parts"  # the metadata of shapes and places


def write(
    folder: Path, stem: str, arrays: Mapping[str, Array | Piece], engine: Engine
) -> list[File]:
    """Writes what each rank has to write; the files of all, which are on disk.

    Where one rank cannot write, all remove theirs and raise InputError.
    """
    path = folder / f"{stem}-{engine.rank}-of-{engine.size}.safetensors"
    told: dict[str, str] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if _written(path, arrays, engine.rank == 0):
            told = {"name": path.name, "digest": digest_of_file(path)}
    except (OSError, InputError, LoadError) as error:
        told = {"error": getattr(error, "strerror", None) or str(error)}
    files = together(told, f"files of {stem}", engine)
    for rank, file in enumerate(files):
        if "error" in file:
            remove(path)
            raise InputError(
                f"{folder}: {stem} cannot be written on rank {rank}: {file['error']}; the "
                "checkpoints before are as they were, make room for this one"
            )
    return [file for file in files if file]


def together(told: Mapping[str, str], what: str, engine: Engine) -> list[dict[str, str]]:
    """What all ranks tell, in their order."""
    return [json.loads(data) for data in engine.exchange(json.dumps(told).encode(), what)]


def remove(path: Path) -> None:
    """Deletes a file that no checkpoint names."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _written(path: Path, arrays: Mapping[str, Array | Piece], is_first: bool) -> bool:
    """Writes a rank's file, if it has anything to write."""
    to_write: dict[str, Array] = {}
    places: dict[str, Any] = {}
    for name, value in arrays.items():
        if isinstance(value, Piece):
            if value.writes:
                to_write[name] = value.array
                places[name] = {"shape": value.shape, "start": value.start}
        elif is_first:
            to_write[name] = value
    if to_write:
        save_safetensors(path, to_write, {PARTS: json.dumps(places)})
    return bool(to_write)


def read(folder: Path, files: Sequence[File], rank: int, size: int) -> dict[str, Stored]:
    """The arrays of a checkpoint, of which nothing is read yet.

    Each of `size` ranks compares its share of the files with their digests. Raises LoadError.
    """
    for file in files[rank::size]:
        if digest_of_file(folder / file["name"]) != file["digest"]:
            raise LoadError(f"{folder / file['name']}: damaged: its digest is another one")
    blocks: dict[str, list[Block]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        path = folder / file["name"]
        places = parse_object(read_metadata(path).get(PARTS, "{}").encode(), f"{path}: its parts")
        for name, array in read_safetensors(path).items():
            place = places.get(name, {"shape": array.shape, "start": (0,) * array.ndim})
            shapes[name] = tuple(place["shape"])
            blocks.setdefault(name, []).append((tuple(place["start"]), array))
    for name, parts in blocks.items():
        _check(folder, name, shapes[name], parts)
    return {
        name: Stored(name, shapes[name], parts, lambda array: let_go([array]))
        for name, parts in blocks.items()
    }


def _check(folder: Path, name: str, shape: tuple[int, ...], parts: Sequence[Block]) -> None:
    """Raises LoadError for parts that do not make up the whole."""
    inside = all(
        len(start) == array.ndim == len(shape)
        and all(0 <= at <= n - k for at, n, k in zip(start, shape, array.shape, strict=True))
        for start, array in parts
    )
    elements = sum(array.size for _, array in parts)
    starts = {start for start, _ in parts}
    if not inside or elements != math.prod(shape) or len(starts) < len(parts):
        raise LoadError(
            f"{folder}: {name} has the shape {shape}, and its parts are "
            + ", ".join(f"{array.shape} at {start}" for start, array in parts)
        )


def whole(stored: Stored) -> Array:
    """All of an array, in memory of its own."""
    return np.array(stored)


def digest_of_file(path: Path) -> str:
    """The digest of a file's bytes, which are read a block at a time."""
    digest = hashlib.blake2b(digest_size=16)
    with open_file(path) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
