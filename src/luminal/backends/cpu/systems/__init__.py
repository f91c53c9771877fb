"""What native code asks of the operating system: one module for each, with the same functions.

Memory for code is first written, then run, and no page may be both for a thread at any time, which
hardened systems forbid. A module asks nothing of the system it runs on until it is called, so the
functions of one system can be run on another against stand-ins.
"""

from __future__ import annotations

import mmap
import sys

from luminal.base.errors import CompileError

if sys.platform == "win32":
    from luminal.backends.cpu.systems import windows as _system
elif sys.platform == "darwin":
    from luminal.backends.cpu.systems import darwin as _system
else:
    from luminal.backends.cpu.systems import posix as _system

PAGE = mmap.PAGESIZE

mapped = _system.mapped
fill = _system.fill
unmap = _system.unmap
find = _system.find


def address_of(name: str) -> int:
    """The address of a symbol of libc, libm or another library of the process."""
    address = find(name)
    if address is None:
        raise CompileError(f"linking: {name} is not in the object, nor in libc or libm")
    return address


__all__ = ["PAGE", "address_of", "fill", "find", "mapped", "unmap"]
