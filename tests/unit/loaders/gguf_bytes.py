"""GGUF files written byte by byte."""

from __future__ import annotations

import struct
from typing import Any


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(item: Any) -> bytes:
    """One metadata value with its type number in front."""
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    items = [value(i) for i in item]
    return (
        struct.pack("<I", 9)
        + items[0][:4]
        + struct.pack("<Q", len(items))
        + b"".join(i[4:] for i in items)
    )


def gguf(metadata: dict[str, Any], tensors: dict[str, Any], version: int = 3) -> bytes:
    """A file; tensors are given with their GGUF type number, and a shape if not the array's."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, item in metadata.items():
        head += text(key) + value(item)
    data = b""
    for name, (kind, array, *given) in tensors.items():
        dims = (given[0] if given else array.shape)[::-1]
        head += text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        head += struct.pack("<IQ", kind, len(data))
        data += array.tobytes() + bytes(-array.nbytes % 32)
    return head + bytes(-len(head) % 32) + data
