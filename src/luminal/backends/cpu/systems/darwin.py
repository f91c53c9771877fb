"""Memory for code on macOS.

Apple silicon lets no page be written and run by the same thread. Memory that is mapped for code
(MAP_JIT) is, by a switch of each thread's own, either written or run by it; other threads run code
there meanwhile. Programs under the hardened runtime get no other memory to run. Constants and
variables lie behind the code, at fixed distances, and are ordinary memory: it is mapped over the
end of what was mapped for code, as MAP_JIT takes no place of one's choice.

Source: Apple's "Porting just-in-time compilers to Apple silicon".
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from luminal.backends.cpu.systems import posix
from luminal.backends.cpu.systems.posix import at, find, libc, unmap

__all__ = ["fill", "find", "mapped", "unmap"]

READ, WRITE, EXECUTE = 1, 2, 4
PRIVATE, FIXED, JIT, ANONYMOUS = 0x2, 0x10, 0x800, 0x1000  # of mmap; others than Linux has


def mapped(size: int, code: int) -> int:
    """The address of `size` fresh bytes, of which the first `code` are to be run.

    Raises CompileError where there are none.
    """
    if _switch() is None:
        return posix.mapped(size, code)
    flags, data = PRIVATE | ANONYMOUS, size - code
    start = at(libc().mmap(None, size, READ | WRITE | EXECUTE, flags | JIT, -1, 0))
    if data:
        at(libc().mmap(start + code, data, READ | WRITE, flags | FIXED, -1, 0))
    return start


def fill(start: int, image: bytearray, code: int, fixed: int) -> None:
    """Writes an image, and lets its first `code` bytes be run and those up to `fixed` be read only.

    Raises CompileError where the system forbids it.
    """
    switch = _switch()
    if switch is None:
        posix.fill(start, image, code, fixed)
        return
    switch(0)
    try:
        posix.write(start, image)
    finally:
        switch(1)  # or this thread could run no code any more
    libc().sys_icache_invalidate(ctypes.c_void_p(start), ctypes.c_size_t(code))
    posix.protect(start + code, fixed - code)


@functools.cache
def _switch() -> Any:
    """What lets this thread write code (0) or run it (1); None where both need no switch: on
    Intel's processors.
    """
    library = libc()
    try:
        is_needed = library.pthread_jit_write_protect_supported_np()
        return library.pthread_jit_write_protect_np if is_needed else None
    except AttributeError:  # before macOS 11
        return None
