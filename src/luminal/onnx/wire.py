"""The message of a model without its initializers' data, which stays where the file is mapped.

A protobuf message is a list of fields: a key (number and kind), and for texts, bytes and messages a
length before the content (protobuf.dev, "Encoding"). Only lengths on the way to `raw_data` change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9  # numbers of fields in ModelProto, GraphProto, TensorProto
MIN_BYTES = 4096
"""Data below a page stays in the message."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class _Field(NamedTuple):
    """One field: `start` is where its key begins, `content` where its content does."""

    number: int
    kind: int
    start: int
    content: int
    end: int


def without_data(data: memoryview) -> tuple[bytes, dict[int, memoryview]]:
    """The message with large initializers emptied, and the data of these by their numbers.

    What is no sound message comes back whole: whoever parses it says what is wrong.
    """
    try:
        fields = list(_fields(data, 0, len(data)))
        graphs = [field for field in fields if field.number == GRAPH and field.kind == _BYTES]
        if len(graphs) != 1:
            return bytes(data), {}
        emptied: dict[int, memoryview] = {}
        parts = []
        for field in fields:
            if field is graphs[0]:
                parts.append(_lengthy(GRAPH, _graph(data, field, emptied)))
            else:
                parts.append(bytes(data[field.start : field.end]))
    except (IndexError, ValueError):
        return bytes(data), {}
    return b"".join(parts), emptied


def _graph(data: memoryview, graph: _Field, emptied: dict[int, memoryview]) -> bytes:
    parts, number = [], 0
    for field in _fields(data, graph.content, graph.end):
        if field.number == INITIALIZER and field.kind == _BYTES:
            parts.append(_lengthy(INITIALIZER, _tensor(data, field, number, emptied)))
            number += 1
        else:
            parts.append(bytes(data[field.start : field.end]))
    return b"".join(parts)


def _tensor(data: memoryview, tensor: _Field, number: int, emptied: dict[int, memoryview]) -> bytes:
    parts = []
    for field in _fields(data, tensor.content, tensor.end):
        large = field.end - field.content >= MIN_BYTES
        if field.number == RAW_DATA and field.kind == _BYTES and large:
            emptied[number] = data[field.content : field.end]
        else:
            parts.append(bytes(data[field.start : field.end]))
    return b"".join(parts)


def _fields(data: memoryview, at: int, end: int) -> Iterator[_Field]:
    """The fields between two places. Raises ValueError, IndexError where they do not fit."""
    while at < end:
        start = at
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            content, (_, stop) = at, _varint(data, at)
        elif kind == _BYTES:
            size, content = _varint(data, at)
            stop = content + size
        elif kind in (_FIXED64, _FIXED32):
            content, stop = at, at + (8 if kind == _FIXED64 else 4)
        else:
            raise ValueError("a kind of field that is none")
        if stop > end:
            raise ValueError("a field beyond the end")
        yield _Field(key >> 3, kind, start, content, stop)
        at = stop


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
        if shift > 63:
            raise ValueError("a number that does not end")


def _lengthy(number: int, content: bytes) -> bytes:
    return _spelled(number << 3 | _BYTES) + _spelled(len(content)) + content


def _spelled(number: int) -> bytes:
    spelling = bytearray()
    while number >= 0x80:
        spelling.append(number & 0x7F | 0x80)
        number >>= 7
    spelling.append(number)
    return bytes(spelling)
