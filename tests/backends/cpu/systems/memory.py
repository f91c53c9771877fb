"""Memory of macOS and Windows over Linux's: it refuses what these systems refuse."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

PRIVATE, FIXED, ANONYMOUS = 0x2, 0x10, 0x20  # Linux's flags of mmap
READ, WRITE, EXECUTE = 1, 2, 4


def _linux() -> Any:
    library = ctypes.CDLL(None)
    library.mmap.restype = ctypes.c_void_p
    words = ctypes.c_void_p, ctypes.c_size_t
    library.mmap.argtypes = (*words, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    library.munmap.argtypes = words
    library.mprotect.argtypes = *words, ctypes.c_int
    return library


class Mac:
    """The libraries of a process on Apple silicon. Memory for code that was not filled yet may be
    written only while the switch says so, and run only while it does not.
    """

    def __init__(self, find: Callable[[str], int | None]) -> None:
        self._linux = _linux()
        self._find = find
        self._unfilled: dict[int, int] = {}
        self.switched: list[int] = []
        self.invalidated: list[tuple[int, int]] = []

    def mmap(
        self, at: int | None, size: int, access: int, flags: int, file: int, offset: int
    ) -> Any:
        """Takes the Mac's flags; no MAP_JIT at a place of the caller's choice."""
        assert not flags & ~0x1812, hex(flags)
        is_code = bool(flags & 0x800)
        if is_code:
            assert access == READ | WRITE | EXECUTE
            assert at is None
            assert not flags & FIXED
        else:
            assert not access & EXECUTE
        start = self._linux.mmap(
            at, size, READ if is_code else access, PRIVATE | ANONYMOUS | flags & FIXED, file, offset
        )
        if is_code:
            self._unfilled[start] = size
        elif flags & FIXED:
            (under,) = (s for s, n in self._unfilled.items() if s < at < s + n)
            self._unfilled[under] = at - under
        return start

    def mprotect(self, start: int, size: int, access: int) -> int:
        """Lets no memory be run that was mapped without MAP_JIT."""
        assert not access & EXECUTE
        return int(self._linux.mprotect(start, size, access))

    def munmap(self, start: int, size: int) -> int:
        """Gives memory back."""
        self._unfilled.pop(start, None)
        return int(self._linux.munmap(start, size))

    def pthread_jit_write_protect_supported_np(self) -> int:
        """Whether the switch does anything."""
        return 1

    def pthread_jit_write_protect_np(self, runs: int) -> None:
        """The switch of this thread."""
        self.switched.append(runs)
        access = READ | (EXECUTE if runs else WRITE)
        for start, size in self._unfilled.items():
            assert self._linux.mprotect(start, size, access) == 0
        if runs:
            self._unfilled.clear()

    def sys_icache_invalidate(self, start: Any, size: Any) -> None:
        """Makes instructions seen."""
        assert self.switched[-1:] == [1]
        self.invalidated.append((start.value, size.value))

    def __getitem__(self, name: str) -> ctypes.c_void_p:
        address = self._find(name)
        if address is None:
            raise AttributeError(name)
        return ctypes.c_void_p(address)


class Windows:
    """kernel32 and all other libraries of a process on Windows in one."""

    def __init__(self, find: Callable[[str], int | None]) -> None:
        self._linux = _linux()
        self._find = find
        self._sizes: dict[int, int] = {}
        self.flushed: list[tuple[int, int]] = []
        self.VirtualAlloc = self._function(self._alloc)
        self.VirtualProtect = self._function(self._protect)
        self.VirtualFree = self._function(self._free)
        self.GetCurrentProcess = self._function(lambda: -1)
        self.FlushInstructionCache = self._function(self._flush)

    @staticmethod
    def _function(call: Callable[..., Any]) -> Any:
        def function(*arguments: Any) -> Any:
            return call(*arguments)

        return function

    def _alloc(self, at: None, size: int, kind: int, access: int) -> Any:
        assert (at, kind, access) == (None, 0x3000, 0x04)
        start = self._linux.mmap(None, size, READ | WRITE, PRIVATE | ANONYMOUS, -1, 0)
        self._sizes[start] = size
        return start

    def _protect(self, start: int, size: int, access: int, before: Any) -> int:
        # Windows has no more of these than a read, a write and an execution that are not all three.
        mine = {0x02: READ, 0x04: READ | WRITE, 0x20: READ | EXECUTE}[access]
        return int(self._linux.mprotect(start, size, mine) == 0)

    def _free(self, start: int, size: int, kind: int) -> int:
        assert (size, kind) == (0, 0x8000)  # all that was allocated there, as MEM_RELEASE wants it
        return int(self._linux.munmap(start, self._sizes.pop(start)) == 0)

    def _flush(self, process: int, start: int, size: int) -> int:
        assert process == -1
        self.flushed.append((start, size))
        return 1

    def __getitem__(self, name: str) -> ctypes.c_void_p:
        address = self._find(name)
        if address is None:
            raise AttributeError(name)
        return ctypes.c_void_p(address)
