"""IDX files, plain or gzipped, are the format of MNIST. http://yann.lecun.com/exdb/mnist/.

Two zero bytes, a byte for the dtype, one for the rank, the extents as big-endian u32, the elements.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from luminal.base.errors import LoadError
from luminal.loaders.mapped import Array, byte_count, given_path, open_file
from luminal.loaders.shown import shown

DTYPES = {
    code: np.dtype(name)
    for code, name in (
        (0x08, ">u1"), (0x09, ">i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8"),
    )
}  # fmt: skip
GZIP = b"\x1f\x8b"
BLOCK = 1 << 20  # bytes taken at a time: a header may promise more than any memory holds


def read_idx(path: str | Path) -> Array:
    """The array of an IDX file, in the machine's byte order.

    Raises LoadError where the file is truncated, has bytes left over, or is something else.
    """
    place = given_path(path)
    with open_file(place) as file:
        # By the first bytes and not by the name, which does not always follow the packing.
        packed = file.read(2) == GZIP
        file.seek(0)
        try:
            if not packed:
                return _read(file, place)
            with gzip.open(file) as unpacked:
                return _read(unpacked, place)
        except (OSError, EOFError, zlib.error) as error:
            raise LoadError(f"{place}: cannot be unpacked: {shown(error)}") from error


def _read(file: IO[bytes] | gzip.GzipFile, path: Path) -> Array:
    head = _exactly(file, 4, path, "the header")
    if head[:2] != b"\0\0" or head[2] not in DTYPES:
        raise LoadError(f"{path}: not an IDX file: it begins with {head!r}")
    dtype, rank = DTYPES[head[2]], head[3]
    extents = np.frombuffer(_exactly(file, 4 * rank, path, "the header"), ">u4")
    shape = tuple(map(int, extents))
    data = _exactly(file, byte_count(dtype, shape, str(path)), path, f"the shape {list(shape)}")
    # Of a gzip file this read also reaches the end, where its checksum is looked at.
    if file.read(1):
        raise LoadError(f"{path}: there are bytes after the {len(data)} of its shape {list(shape)}")
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _exactly(file: IO[bytes] | gzip.GzipFile, count: int, path: Path, what: str) -> bytes:
    """The next `count` bytes."""
    data = bytearray()
    while len(data) < count:
        block = file.read(min(BLOCK, count - len(data)))
        if not block:
            raise LoadError(
                f"{path}: truncated: {what} needs {count} bytes, the file has {len(data)}; "
                "download it again"
            )
        data += block
    return bytes(data)
