"""Memory for code on Windows."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from luminal.base.errors import CompileError

COMMIT, RESERVE, RELEASE = 0x1000, 0x2000, 0x8000  # of VirtualAlloc and VirtualFree
READ, READ_WRITE, EXECUTE_READ = 0x02, 0x04, 0x20  # protections of pages
# Math and memory, waiting, threads and clocks; ntdll has what code calls that needs much stack.
LIBRARIES = ("ucrtbase", "kernel32", "kernelbase", "ntdll")


def mapped(size: int, code: int) -> int:
    """The address of `size` fresh bytes, of which the first `code` are to be run.

    Raises CompileError where there are none.
    """
    start: int | None = _kernel().VirtualAlloc(None, size, RESERVE | COMMIT, READ_WRITE)
    _check(start is not None)
    return start or 0


def fill(start: int, image: bytearray, code: int, fixed: int) -> None:
    """Writes an image, and lets its first `code` bytes be run and those up to `fixed` be read only.

    Raises CompileError where the system forbids it.
    """
    ctypes.memmove(start, bytes(image), len(image))
    # Only now, after all is written.
    _protect(start, code, EXECUTE_READ)
    kernel = _kernel()
    kernel.FlushInstructionCache(kernel.GetCurrentProcess(), start, code)
    _protect(start + code, fixed - code, READ)


def unmap(start: int, size: int) -> None:
    """Gives the memory back."""
    _kernel().VirtualFree(start, 0, RELEASE)


def find(name: str) -> int | None:
    """The address of a symbol of Windows, its C library or Python; None where none has it."""
    for library in _libraries():
        try:
            return ctypes.cast(library[name], ctypes.c_void_p).value
        except AttributeError:
            continue
    return None


def _protect(start: int, size: int, access: int) -> None:
    before = ctypes.c_uint32()
    _check(size == 0 or _kernel().VirtualProtect(start, size, access, ctypes.byref(before)) != 0)


def _libraries() -> list[Any]:
    return [*map(_library, LIBRARIES), ctypes.pythonapi]


@functools.cache
def _library(name: str) -> Any:
    return ctypes.WinDLL(name, use_last_error=True)  # type: ignore[attr-defined, unused-ignore]


@functools.cache
def _kernel() -> Any:
    library, word = _library("kernel32"), ctypes.c_size_t
    library.VirtualAlloc.restype = library.GetCurrentProcess.restype = ctypes.c_void_p
    library.VirtualAlloc.argtypes = ctypes.c_void_p, word, ctypes.c_uint32, ctypes.c_uint32
    library.VirtualProtect.argtypes = ctypes.c_void_p, word, ctypes.c_uint32, ctypes.c_void_p
    library.VirtualFree.argtypes = ctypes.c_void_p, word, ctypes.c_uint32
    library.FlushInstructionCache.argtypes = ctypes.c_void_p, ctypes.c_void_p, word
    return library


def _check(is_done: bool) -> None:
    if not is_done:
        number = ctypes.get_last_error()  # type: ignore[attr-defined, unused-ignore]
        raise CompileError(
            f"linking: no memory for code: error {number} of Windows; a rule of this system may "
            "forbid memory that is first written, then run"
        )
