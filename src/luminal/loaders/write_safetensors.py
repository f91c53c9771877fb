"""state_dicts as safetensors files; `safetensors_file` describes the format and reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from luminal.base.errors import InputError
from luminal.loaders.safetensors_file import DTYPES, METADATA
from luminal.loaders.write_atomic import arrays_of, replacing

NAMES = {dtype: name for name, dtype in DTYPES.items()}
ALIGNMENT = 8  # of the data's start; the format asks for it


def save_safetensors(
    path: str | Path, state: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes arrays by name, atomically. Raises InputError for dtypes that the format lacks, and
    for the one name that it keeps for itself.

    Tensors of wide elements come first, so that each begins at a multiple of its element's size.
    """
    arrays = arrays_of(state, NAMES, "safetensors")
    if METADATA in arrays:
        raise InputError(
            f"{METADATA}: is where safetensors has its metadata; name the array otherwise"
        )
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    offset = 0
    for name in order:
        array = arrays[name]
        header[name] = {
            "dtype": NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    # The format allows spaces behind the header's JSON, for this very purpose.
    text += b" " * (-len(text) % ALIGNMENT)
    with replacing(path) as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            # Its bytes where they lie: a copy would take as much memory once more.
            file.write(arrays[name].reshape(-1).view(np.uint8).data)
