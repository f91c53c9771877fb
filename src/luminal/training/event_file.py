"""Files of events as TensorBoard reads them, written without TensorFlow.

A file is records: the length in 8 bytes, a masked CRC-32C of those, the event, and one of that, all
little-endian (tensorflow/core/lib/io/record_writer.cc has the format). An event is a message of
protocol buffers (tensorboard/compat/proto/event.proto, summary.proto): fields 1 wall_time, 2 step,
3 file_version, 5 summary; a summary's field 1 is a value with 1 tag and 2 simple_value.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from luminal.base.errors import InputError
from luminal.loaders.mapped import given_path

VERSION = b"brain.Event:2"
POLYNOMIAL = 0x82F63B78
"""Castagnoli's, with its bits reversed (RFC 3720, appendix B.4)."""
MASK = 0xA282EAD8


class EventFile:
    """A new file of events in a folder, which is made; each event is in it once it is added.

    Raises InputError where it cannot be written.
    """

    def __init__(self, folder: str | Path) -> None:
        place = given_path(folder)
        now, host = time.time(), socket.gethostname()
        # TensorBoard reads the files of a folder in the order of their names: by time.
        name = f"events.out.tfevents.{int(now):010d}.{host}.{os.getpid()}.{secrets.token_hex(3)}"
        self.path = place / name
        try:
            place.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("xb", buffering=0)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written: {error.strerror}") from error
        self._add(_double(1, now) + _bytes(3, VERSION))

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """An event with a number for each tag."""
        values = b"".join(
            _bytes(1, _bytes(1, tag.encode()) + _float(2, number))
            for tag, number in scalars.items()
        )
        self._add(_double(1, time.time()) + _whole(2, step) + _bytes(5, values))

    def close(self) -> None:
        """Closes the file of events."""
        self._file.close()

    def _add(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        checks = (struct.pack("<I", masked(crc32c(part))) for part in (length, event))
        self._file.write(length + next(checks) + event + next(checks))


def crc32c(data: bytes) -> int:
    """The CRC-32C of bytes (RFC 3720, appendix B.4)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """A CRC as it is stored: the CRC of data that holds CRCs is a poor one."""
    return (((crc >> 15) | (crc << 17)) + MASK) & 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    rows = []
    for row in range(256):
        for _ in range(8):
            row = (row >> 1) ^ (POLYNOMIAL if row & 1 else 0)
        rows.append(row)
    return tuple(rows)


_TABLE = _table()


def _whole(field: int, number: int) -> bytes:
    return _key(field, 0) + _varint(number)


def _double(field: int, number: float) -> bytes:
    return _key(field, 1) + struct.pack("<d", number)


def _bytes(field: int, data: bytes) -> bytes:
    return _key(field, 2) + _varint(len(data)) + data


def _float(field: int, number: float) -> bytes:
    return _key(field, 5) + struct.pack("<f", number)


def _key(field: int, kind: int) -> bytes:
    return bytes([field << 3 | kind])


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])
