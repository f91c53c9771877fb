"""The pages of mapped arrays brought into this process while it does something else, and let go.

A mapped file costs a fault for every few pages where it is first read, though the file be in the
page cache: 0.1 s for 2 GB, on the way to a model's first token. A thread that does not hold the
interpreter takes these faults while a program is compiled or loaded. Pages that are only on disk
are read so, too, one after the other.

What programs read in a layout of their own need not stay beside it: its pages leave the process,
not the page cache, and come back for whoever reads the file after all.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from luminal.base import host
from luminal.memory.arrays import Array, address

DONT_NEED = 4  # of madvise
BESIDE = 2 << 20
"""A fault maps a folio of the page cache as a whole (Linux 6.18), which has so many bytes at most:
beside rows that are part of a matrix lies what nobody here will read.
"""
SHARE = 0.5  # of the machine's memory: more would push out what is still to be read


# Only pages of a file can be let go: anonymous memory would be lost.
def is_mapped(array: Array) -> bool:
    """Does it look into a file that `map_file` mapped? Its pages are the file's own, never written
    to: what is let go of them is read again where it is asked for.
    """
    return _mapping(array) is not None


def _mapping(array: Array) -> memoryview | None:
    """All of the mapped file that an array looks into; None where it looks into none."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not (isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap)):
        return None
    whole = memoryview(base.obj)
    return whole if whole.readonly else None


def read_ahead(arrays: Iterable[Array]) -> threading.Thread | None:
    """Starts to map the pages of mapped arrays, which stay alive until that is done.

    None where there are no such arrays, or more than memory holds.
    """
    held = [array for array in arrays if array.nbytes and is_mapped(array)]
    memory, _ = host.memory()
    if not held or memory is None or sum(array.nbytes for array in held) > SHARE * memory:
        return None
    # The arrays are an argument: what they look into is there as long as the thread is.
    thread = threading.Thread(target=_touch, args=(held,), name="read ahead", daemon=True)
    thread.start()
    return thread


def let_go(arrays: Iterable[Array]) -> None:
    """Unmaps the pages of those that look into mapped files, and what was mapped with them; all
    others are left alone. Pages of neighbours that are read after all come back.

    Windows takes pages back by itself, so nothing is done there.
    """
    system: str = sys.platform  # or checkers of types call what follows unreachable there
    if system == "win32":
        return
    for array in arrays:
        if array.nbytes and (whole := _mapping(array)) is not None:
            (first, last), (start, stop) = *runs([np.asarray(whole)]), *runs([array])
            start, stop = max(first, start - BESIDE), min(last, stop + BESIDE)
            _madvise()(start, stop - start, DONT_NEED)


def runs(arrays: Iterable[Array]) -> Iterator[tuple[int, int]]:
    """The pages of the arrays as ranges [start, stop) of addresses, neighbours as one."""
    page = mmap.PAGESIZE
    ends = sorted((address(array), address(array) + array.nbytes) for array in arrays)
    start = stop = 0
    for first, last in ends:
        first, last = first // page * page, -(-last // page) * page
        if first > stop:
            if stop > start:
                yield start, stop
            start = first
        stop = max(stop, last)
    if stop > start:
        yield start, stop


def _touch(arrays: list[Array]) -> None:
    """Reads a byte of every page. A call for neighbours together: whoever works meanwhile is asked
    for the interpreter once, and faults, unlike madvise, hold no lock that allocations wait for.
    """
    for start, stop in runs(arrays):
        pages = (ctypes.c_uint8 * (stop - start)).from_address(start)
        np.frombuffer(pages, np.uint8)[:: mmap.PAGESIZE].max()  # type: ignore[call-overload]


def _madvise() -> Callable[[int, int, int], int]:
    # The method of Python's mmap takes offsets in the mapping, where arrays only know addresses.
    function = ctypes.CDLL(None).madvise
    function.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return function
