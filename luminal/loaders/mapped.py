"""Files mapped into memory, and read-only NumPy arrays that look into them without a copy."""

from __future__ import annotations

import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from luminal.errors import LoadError

Array = npt.NDArray[Any]


def map_file(path: Path) -> memoryview:
    """The bytes of `path`, read-only. Raises LoadError where there is no such file or no byte."""
    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise LoadError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError:
        raise LoadError(f"{path}: the file is empty; download it again") from None


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
