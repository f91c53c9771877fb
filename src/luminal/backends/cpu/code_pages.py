"""Memory for code: pages of this process that are first written, then run.

No page is writable and executable at the same time, which hardened systems forbid.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import platform
from typing import Any

from luminal.base.errors import CompileError

PAGE = mmap.PAGESIZE
ERROR = ctypes.c_void_p(-1).value


def mapped(size: int) -> int:
    """The address of `size` fresh bytes that may be written. CompileError where there are none."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    start: int = _libc().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    _check(start != ERROR)
    return start


def make_code(start: int, size: int) -> None:
    """Lets bytes that have been written be run. CompileError where the system forbids it."""
    _check(_libc().mprotect(start, size, mmap.PROT_READ | mmap.PROT_EXEC) == 0)
    flush = _flush()
    if flush is not None:
        flush(start, start + size)


def make_constant(start: int, size: int) -> None:
    """Lets bytes only be read from now on."""
    _check(size == 0 or _libc().mprotect(start, size, mmap.PROT_READ) == 0)


def unmap(start: int, size: int) -> None:
    """Gives the memory back."""
    _libc().munmap(start, size)


def address_of(name: str) -> int:
    """The address of a symbol of libc, libm or another library of the process."""
    try:
        return ctypes.cast(_libc()[name], ctypes.c_void_p).value or 0
    except AttributeError:
        raise CompileError(f"linking: {name} is not in the object, nor in libc or libm") from None


@functools.cache
def _libc() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    words = ctypes.c_void_p, ctypes.c_size_t
    library.mmap.argtypes = (*words, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    library.munmap.argtypes = words
    library.mprotect.argtypes = *words, ctypes.c_int
    return library


# An x86-64 processor sees by itself that instructions have been written. Others fetch them past
# the cache of data. Linux cleans that cache when a fresh page becomes executable, so a system
# without the library of the C compiler has nothing to fear; the architecture does not promise it.
@functools.cache
def _flush() -> Any:
    """What makes instructions that have been written seen, where a processor needs it."""
    if platform.machine() == "x86_64":
        return None
    try:
        flush = ctypes.CDLL("libgcc_s.so.1").__getattr__("__clear_cache")
    except (OSError, AttributeError):
        return None
    flush.restype, flush.argtypes = None, (ctypes.c_void_p, ctypes.c_void_p)
    return flush


def _check(is_done: bool) -> None:
    if not is_done:
        raise CompileError(
            f"linking: no memory for code: {os.strerror(ctypes.get_errno())}; a rule of this "
            "system may forbid memory that is first written, then run"
        )
