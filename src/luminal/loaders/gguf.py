"""Metadata and tensors from GGUF files, versions 2 and 3, memory-mapped.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from luminal.base.errors import LoadError
from luminal.base.records import dataclass
from luminal.loaders.fields import Fields
from luminal.loaders.ggml.types import BLOCKS, NUMBERS, PLAIN
from luminal.loaders.mapped import MAX_RANK, Array, array_at, byte_count, map_file
from luminal.loaders.shown import MAX_LENGTH, check_name, shown

MAX_ITEMS = 1 << 21  # in the metadata's arrays: the largest vocabularies have two thirds of it
INNER_ARRAY = 64  # items that an array in an array counts as, by the time it takes
MAX_DEPTH = 8  # of arrays of arrays; no known file has any
MAX_TEXT_BYTES = 1 << 26
MAX_PARTS = 1000  # of a model in several files

_TYPE_NAMES = {number: name for name, number in NUMBERS.items()}
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
_FLOAT32, _STRING, _ARRAY = 6, 8, 9
_LAYOUTS = {code: struct.Struct("<" + code) for code in "IQ"}
_SCALARS: dict[int, np.dtype[Any]] = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype(np.bool_),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}


def decimal(value: float) -> float:
    """The shortest decimal that rounds to the same 32-bit float: mostly what was meant."""
    return float(str(np.float32(value)))


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as it lies in the file: `data` holds its numbers, or for each row its blocks."""

    kind: str
    shape: tuple[int, ...]
    data: Array

    def array(self) -> Array:
        """The tensor's numbers, read-only: a view of the file, or decoded to float32."""
        if self.kind in PLAIN:
            return self.data
        values = BLOCKS[self.kind].decoded(self.data.reshape(-1)).reshape(self.shape)
        values.flags.writeable = False
        return values


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """`metadata`: Python scalars, strings and lists by key; 32-bit floats are their `decimal`s."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]


def read_gguf(path: Path) -> GGUFFile:
    """Read a GGUF file. Raises LoadError where it is truncated or holds an unknown type."""
    data = map_file(path)
    reader = _Reader(data, path)
    if bytes(data[:4]) != b"GGUF":
        raise LoadError(f"{path}: not a GGUF file: it begins with {bytes(data[:4])!r}")
    reader.position = 4
    version = reader.scalar("I")
    # The version tells the byte order, since the magic is the same in both.
    if int.from_bytes(data[4:8], "big") in (1, 2, 3):
        raise LoadError(
            f"{path}: a big-endian GGUF file; convert it once, with gguf-convert-endian of the "
            "package gguf, or download the little-endian one"
        )
    if version not in (2, 3):
        raise LoadError(f"{path}: GGUF version {version} is not supported; 2 and 3 are")
    n_tensors, n_keys = reader.scalar("Q"), reader.scalar("Q")
    metadata: dict[str, Any] = {}
    for _ in range(n_keys):
        key = reader.text()
        if not key:
            raise LoadError(f"{path}: the metadata has an empty key; the file is damaged")
        if key in metadata:
            raise LoadError(f"{path}: the metadata has {shown(key)} twice; the file is damaged")
        metadata[key] = reader.value(reader.scalar("I"))
    entries = [reader.tensor_entry() for _ in range(n_tensors)]
    alignment = Fields(metadata, path, "the metadata").integer("general.alignment", 32)
    # Offsets count from behind the header, rounded up to the file's alignment.
    start = -(-reader.position // alignment) * alignment
    _check_spans(entries, path)  # before any is copied, for the sake of its alignment
    tensors = {entry.name: _tensor(data, start, entry, path) for entry in entries}
    return GGUFFile(metadata, tensors)


def read_split_gguf(path: Path) -> GGUFFile:
    """A GGUF file with the tensors of those beside it, where it is the first of several.

    Raises LoadError for another one than the first, and where one is missing.
    """
    file = read_gguf(path)
    fields = Fields(file.metadata, path, "the metadata")
    # llama-gguf-split leaves a count of 0 in what it has put together again.
    count = fields.integer("split.count", 1, least=0)
    if count < 2:
        return file
    match = _PART.fullmatch(path.name)
    # Only the first has the model's metadata, so no other one can stand for the whole.
    if match is None or int(match[2]) != 1 or int(match[3]) != count or count > MAX_PARTS:
        raise LoadError(
            f"{path}: is one of {count} files; pass the first, whose name ends in "
            f"-00001-of-{min(count, MAX_PARTS):05d}.gguf"
        )
    tensors = dict(file.tensors)
    for number in range(2, count + 1):
        beside = path.with_name(f"{match[1]}-{number:05d}-of-{count:05d}.gguf")
        part = read_gguf(beside).tensors
        both = next((name for name in part if name in tensors), None)
        if both is not None:
            raise LoadError(f"{beside}: tensor {shown(both)} is in another file too")
        tensors |= part
    return GGUFFile(file.metadata, tensors)


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stored: tuple[int, ...]  # how many of that dtype
    begin: int  # from the data's start
    end: int


class _Reader:
    """A position in the header; every read checks that the bytes are there."""

    def __init__(self, data: memoryview, path: Path) -> None:
        self.data = data
        self.path = path
        self.position = 0
        self.items = 0  # of all arrays so far

    def take(self, size: int) -> memoryview:
        end = self.position + size
        if end > len(self.data):
            raise LoadError(
                f"{self.path}: truncated: the header goes on to byte {end}, "
                f"the file has {len(self.data)}; download it again"
            )
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def scalar(self, code: str) -> int:
        layout = _LAYOUTS[code]
        return int(layout.unpack(self.take(layout.size))[0])

    def text(self) -> str:
        # Tokenizers hold pieces that are not whole UTF-8 characters; keep their bytes.
        size = self.scalar("Q")
        if size > MAX_TEXT_BYTES:
            raise LoadError(
                f"{self.path}: a string of {size} bytes, at most {MAX_TEXT_BYTES} are supported; "
                "the file is damaged"
            )
        return bytes(self.take(size)).decode("utf-8", "surrogateescape")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.array(depth + 1)
        if kind not in _SCALARS:
            raise LoadError(f"{self.path}: unknown metadata type {kind}; the file is damaged")
        number = self.numbers(kind, 1)[0]
        return decimal(number) if kind == _FLOAT32 else number

    def array(self, depth: int) -> list[Any]:
        kind, count = self.scalar("I"), self.scalar("Q")
        # Counted over the whole header: a file of some MB may claim arrays that fill the memory as
        # lists.
        self.items += count + (INNER_ARRAY if depth > 1 else 0)
        if depth > MAX_DEPTH or self.items > MAX_ITEMS:
            raise LoadError(
                f"{self.path}: the metadata's arrays nest {depth} deep and hold {self.items} "
                f"values; {MAX_DEPTH} and {MAX_ITEMS} are supported; the file is damaged"
            )
        if kind in _SCALARS:
            return self.numbers(kind, count)
        if kind == _STRING:
            return [self.text() for _ in range(count)]
        return [self.value(kind, depth) for _ in range(count)]

    def numbers(self, kind: int, count: int) -> list[Any]:
        dtype = _SCALARS[kind]
        numbers: list[Any] = np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()
        return numbers

    def tensor_entry(self) -> _Entry:
        name = self.text()
        check_name(name, self.path)
        what = f"{self.path}: tensor {name[:MAX_LENGTH]!r}"
        rank = self.scalar("I")
        if rank > MAX_RANK:
            raise LoadError(f"{what} has {rank} dims; at most {MAX_RANK} are supported")
        # ggml counts dims from the one whose elements lie side by side; NumPy from the other end.
        shape = struct.unpack(f"<{rank}Q", self.take(8 * rank))[::-1]
        kind, begin = self.scalar("I"), self.scalar("Q")
        type_name = _TYPE_NAMES.get(kind)
        if type_name is None:
            raise LoadError(
                f"{what} has type number {kind}, which is not known; known are {', '.join(NUMBERS)}"
            )
        if type_name in PLAIN:
            dtype, stored = PLAIN[type_name], shape
        else:
            dtype, size = BLOCKS[type_name].record, BLOCKS[type_name].size
            if not shape or shape[-1] % size:
                raise LoadError(
                    f"{what} has the shape {shown(list(shape))}; its last dim must be whole blocks "
                    f"of {size}, as it is {type_name}"
                )
            stored = (*shape[:-1], shape[-1] // size)
        byte_count(np.dtype(np.float32), shape, what)  # decoded, it is an array too
        end = begin + byte_count(dtype, stored, what)
        return _Entry(name, type_name, shape, dtype, stored, begin, end)


def _check_spans(entries: Sequence[_Entry], path: Path) -> None:
    """Tensors have names and bytes of their own; padding may lie between them."""
    names: set[str] = set()
    # Overlapping tensors could make a small file an arbitrary number of large arrays.
    previous_end, previous = 0, ""
    for entry in sorted(entries, key=lambda entry: (entry.begin, entry.end)):
        if entry.name in names:
            raise LoadError(f"{path}: tensor {shown(entry.name)} is there twice")
        if entry.begin < previous_end:
            raise LoadError(f"{path}: tensor {shown(entry.name)} overlaps {shown(previous)}")
        names.add(entry.name)
        previous_end, previous = entry.end, entry.name


def _tensor(data: memoryview, start: int, entry: _Entry, path: Path) -> StoredTensor:
    if start + entry.end > len(data):
        raise LoadError(
            f"{path}: truncated: tensor {shown(entry.name)} ends at byte {start + entry.end}, "
            f"the file has {len(data)}; download it again"
        )
    array = array_at(data, start + entry.begin, entry.dtype, entry.stored)
    return StoredTensor(entry.kind, entry.shape, array)
