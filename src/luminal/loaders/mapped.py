"""Files mapped into memory, and read-only NumPy arrays that look into them without a copy.

Nothing that a file says is believed before it was compared with what the file holds.
"""

from __future__ import annotations

import math
import mmap
import os
import stat
import sys
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from luminal.base.errors import InputError, LoadError
from luminal.loaders.shown import shown

Array = npt.NDArray[Any]

WEIGHT_DTYPES = tuple(map(np.dtype, (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)))
MAX_RANK = 64  # of NumPy's arrays
MAX_BYTES = 2**63 - 1  # NumPy's strides are 64-bit

if sys.platform == "win32":
    _READ = os.O_RDONLY | os.O_BINARY | os.O_NOINHERIT
else:
    _READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def given_path(path: str | Path) -> Path:
    """A path that a user wrote, `~` and all. Raises InputError for what is none."""
    if not isinstance(path, str | Path):
        raise InputError(f"{shown(path)} is no path; give a str or a pathlib.Path")
    try:
        return Path(path).expanduser()
    except RuntimeError:  # there is no such user: then it is a name as any other
        return Path(path)


def is_there(path: Path) -> bool:
    """Whether something has this name, be it a broken link: opening it says what is wrong."""
    return os.path.lexists(path)


def open_file(path: Path) -> IO[bytes]:
    """A regular file, open for reading; waits for nobody. Raises LoadError for anything else."""
    try:
        # Opening a FIFO would wait for somebody who writes to it.
        descriptor = os.open(path, _READ)
    except OSError as error:
        raise LoadError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # a name that no file can have
        raise LoadError(f"{str(path)!r}: cannot be read: {error}") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
        raise LoadError(f"{path}: is {kind}, it must be a regular file")
    return os.fdopen(descriptor, "rb")


def map_file(path: Path) -> memoryview:
    """The bytes of `path`, read-only. Raises LoadError where there is no such file or no byte.

    The arrays over them read the file as it is when they are read; see `docs/files.md`.
    """
    with open_file(path) as file:
        try:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except OSError as error:
            raise LoadError(f"{path}: cannot be mapped: {error.strerror}") from error
        except ValueError:
            raise LoadError(f"{path}: the file is empty; download it again") from None


def byte_count(dtype: np.dtype[Any], shape: tuple[int, ...], what: str) -> int:
    """The bytes of an array of non-negative extents. Raises LoadError where NumPy has no such one.

    `what` names it in the message.
    """
    if len(shape) > MAX_RANK:
        raise LoadError(f"{what} has {len(shape)} dims; at most {MAX_RANK} are supported")
    # An extent of 0 makes the array empty, and yet NumPy forms strides of the others.
    filled = math.prod(max(extent, 1) for extent in shape) * dtype.itemsize
    if filled > MAX_BYTES:
        raise LoadError(
            f"{what}: no memory holds the shape {shown(list(shape))}; the file is damaged"
        )
    return math.prod(shape) * dtype.itemsize


def array_at(data: memoryview, offset: int, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> Array:
    """The array at a byte offset, which the caller has checked to lie inside `data`.

    It is a view of the file except where the offset is not a multiple of the item size: native
    code may then not load from it, so it is copied.
    """
    flat = np.frombuffer(data, dtype, count=math.prod(shape), offset=offset)
    if not flat.flags.aligned:
        flat = flat.copy()
        flat.flags.writeable = False
    return flat.reshape(shape)
