"""Ways to damage a file: bytes, JSON trees, fields of binary headers, and what the file is."""

from __future__ import annotations

import copy
import json
import os
import random
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

DEEP, LONG = "@@deep@@", "@@long@@"  # written as text: no Python value nests or counts so far
SPARSE_BYTES = 3 << 30

INTEGERS = (
    0, 1, 2, 3, 7, 64, 65, 255, 4096, 10**6, 10**9, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1,
    2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, 10**400,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, *INTEGERS, *(-n for n in INTEGERS), 1.5, -0.0, 1e-320, 1e300, float("nan"),
    float("inf"), -float("inf"), "", "a", " ", "\0", "\ud800", "../x", "a\nb", "é" * 50,
    "x" * 100_000, [], {}, [[]], [None], [0], [-1], [2**62] * 4, [1] * 65, [0] * 65,
    ["a"], [1.5], {"a": 1}, {"a": {"a": []}}, [1] * 1000, DEEP, LONG,
)  # fmt: skip


class Field(NamedTuple):
    """A piece of a binary file: a number with its struct code, or bytes (code "s")."""

    code: str
    value: Any

    def pack(self) -> bytes:
        return self.value if self.code == "s" else struct.pack("<" + self.code, self.value)


def joined(fields: list[Field]) -> bytes:
    return b"".join(field.pack() for field in fields)


def dumped(value: Any) -> bytes:
    """JSON text, with what stands for depth and length written out."""
    text = json.dumps(value)
    text = text.replace(f'"{DEEP}"', "[" * 100_000 + "]" * 100_000)
    return text.replace(f'"{LONG}"', "9" * 5000).encode()


# --- bytes ----------------------------------------------------------------------------------------


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    """One to four changes: flips, numbers written over, pieces cut out, doubled or zeroed."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        rng.choice(BYTE_CHANGES)(found, rng)
    return bytes(found)


def _at(data: bytearray, rng: random.Random) -> int:
    """A position; headers come first, and matter most."""
    end = len(data) if rng.random() < 0.5 else min(len(data), 400)
    return rng.randrange(max(end, 1))


def _flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 8))):
        if data:
            data[_at(data, rng)] ^= 1 << rng.randrange(8)


def _overwrite(data: bytearray, rng: random.Random) -> None:
    code = rng.choice("BHIQ")
    number = rng.choice(INTEGERS) % (1 << 8 * struct.calcsize(code))
    at = _at(data, rng)
    data[at : at + struct.calcsize(code)] = struct.pack("<" + code, number)


def _cut(data: bytearray, rng: random.Random) -> None:
    at = _at(data, rng)
    del data[at : at + rng.choice((1, 4, 8, 100))]


def _double(data: bytearray, rng: random.Random) -> None:
    at = _at(data, rng)
    data[at:at] = data[at : at + rng.choice((1, 8, 100))]


def _zero(data: bytearray, rng: random.Random) -> None:
    at = _at(data, rng)
    piece = data[at : at + rng.choice((4, 64, 1000))]
    data[at : at + len(piece)] = bytes([rng.choice((0, 0, 255))]) * len(piece)


def _truncate(data: bytearray, rng: random.Random) -> None:
    del data[_at(data, rng) :]


def _append(data: bytearray, rng: random.Random) -> None:
    data += rng.randbytes(rng.choice((1, 7, 8, 1000)))


BYTE_CHANGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip, _flip, _overwrite, _overwrite, _cut, _double, _zero, _truncate, _append,
)  # fmt: skip


# --- JSON -----------------------------------------------------------------------------------------


def damaged_json(value: Any, rng: random.Random, key: str = "") -> Any:
    """A copy with one to three values changed, removed, moved or of another type.

    `key`: changes below the value of this key only.
    """
    found = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 3))):
        below = found.get(key)
        places = _places(below if isinstance(below, dict | list) else found)
        if places:
            _change(*rng.choice(places), found, rng)
    return found


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    found: list[tuple[Any, Any]] = []
    open_values = [value]
    while open_values:
        container = open_values.pop()
        keys = container if isinstance(container, dict) else range(len(container))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], dict | list) and container[key]:
                open_values.append(container[key])
    return found


def _change(container: Any, key: Any, whole: Any, rng: random.Random) -> None:
    old = container[key]
    match rng.randrange(9):
        case 0 | 1 | 2 | 3:
            container[key] = copy.deepcopy(rng.choice(VALUES))
        case 4:
            del container[key]
        case 5:
            container[key] = [old] if rng.random() < 0.5 else {"a": old}
        case 6:
            other, place = rng.choice(_places(whole))
            container[key] = copy.deepcopy(other[place])
        case 7 if isinstance(old, int | float):
            container[key] = rng.choice((old + 1, old - 1, -old, old * 2, old * 2**31, str(old)))
        case 7 if isinstance(old, str):
            container[key] = rng.choice((old + "x", old[1:], old.upper(), old * 1000, ""))
        case _:
            if isinstance(container, dict):
                container[rng.choice((str(key) + "x", "", "type", "é"))] = container.pop(key)
            else:
                container.insert(key, copy.deepcopy(rng.choice(VALUES)))


# --- fields of a binary header --------------------------------------------------------------------


def damaged_fields(fields: list[Field], rng: random.Random) -> bytes:
    """The file with some numbers changed, texts spoilt, or cut at a field's border."""
    found = list(fields)
    if rng.random() < 0.3:
        whole = joined(found[: rng.randrange(len(found))])
        return whole[: len(whole) - rng.choice((0, 0, 0, 1, 2))]
    for _ in range(rng.choice((1, 1, 2, 3))):
        # Large arrays would take nearly all of the draws.
        at = rng.randrange(len(found)) if rng.random() < 0.5 else rng.randrange(min(90, len(found)))
        code, value = found[at]
        if code == "s":
            found[at] = Field("s", damaged_bytes(value, rng))
        elif code in "fd":
            found[at] = Field(code, rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e30)))
        else:
            found[at] = Field(code, _number(code, value, rng))
    return joined(found)


def _number(code: str, value: int, rng: random.Random) -> int:
    bits = 8 * struct.calcsize(code)
    near = (value + 1, value - 1, value * 2, value ^ 1, rng.randrange(14))
    number = rng.choice(INTEGERS) if rng.random() < 0.5 else rng.choice(near)
    number %= 1 << bits
    return number - (1 << bits) if code.islower() and number >> (bits - 1) else number


# --- what the file is -----------------------------------------------------------------------------


def replace_file(path: Path, rng: random.Random) -> str:
    """Something else under the file's name, or nothing; says what."""
    path.unlink()
    what = rng.choice(tuple(SUBSTITUTES))
    SUBSTITUTES[what](path)
    return what


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(path.parent)  # names of sockets are short
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(SPARSE_BYTES)


SUBSTITUTES: dict[str, Callable[[Path], Any]] = {
    "nothing": lambda path: None,
    "an empty file": lambda path: path.touch(),
    "a directory": lambda path: path.mkdir(),
    "a FIFO": os.mkfifo,
    "a socket": _socket,
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to a file of no length": lambda path: path.symlink_to("/proc/self/maps"),
    "3 GB of zeros": _sparse,
}
