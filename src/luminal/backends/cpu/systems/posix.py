"""Memory for code by mmap and mprotect: Linux, and macOS on Intel's processors."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import platform
from typing import Any

from luminal.base.errors import CompileError

ERROR = ctypes.c_void_p(-1).value


def mapped(size: int, code: int) -> int:
    """The address of `size` fresh bytes, of which the first `code` are to be run.

    Raises CompileError where there are none.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return at(libc().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0))


def fill(start: int, image: bytearray, code: int, fixed: int) -> None:
    """Writes an image, and lets its first `code` bytes be run and those up to `fixed` be read only.

    Raises CompileError where the system forbids it.
    """
    write(start, image)
    # Only now, after all is written.
    check(libc().mprotect(start, code, mmap.PROT_READ | mmap.PROT_EXEC) == 0)
    flush = _flush()
    if flush is not None:
        flush(start, start + code)
    protect(start + code, fixed - code)


def unmap(start: int, size: int) -> None:
    """Gives the memory back."""
    libc().munmap(start, size)


def find(name: str) -> int | None:
    """The address of a symbol of a library of the process; None where none has it."""
    try:
        return ctypes.cast(libc()[name], ctypes.c_void_p).value
    except AttributeError:
        return None


# --- what other systems share ---------------------------------------------------------------------


def write(start: int, image: bytearray) -> None:
    """Copies bytes to an address."""
    ctypes.memmove(start, (ctypes.c_char * len(image)).from_buffer(image), len(image))


def protect(start: int, size: int) -> None:
    """Lets bytes only be read from now on."""
    check(size == 0 or libc().mprotect(start, size, mmap.PROT_READ) == 0)


def at(address: int) -> int:
    """The address that mmap returned. Raises CompileError where it is none."""
    check(address != ERROR)
    return address


def check(is_done: bool) -> None:
    """Raises CompileError, with the reason of the system's last refusal, unless it was done."""
    if not is_done:
        raise CompileError(
            f"linking: no memory for code: {os.strerror(ctypes.get_errno())}; a rule of this "
            "system may forbid memory that is first written, then run"
        )


@functools.cache
def libc() -> Any:
    """The libraries of the process, whose functions know their arguments."""
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
