"""Optional libraries whose functions kernels may call: found if installed, loaded at first use."""

from __future__ import annotations

import ctypes
import functools
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from luminal.base import installation
from luminal.base.errors import CompileError
from luminal.codegen.llvm_product import SYMBOLS

BLAS = "blas"  # as target facts name the library
PACKAGE = "scipy_openblas32"
PREFIX = "scipy_"  # of names that kernels call, and of the package's functions
ACCELERATE = "/System/Library/Frameworks/Accelerate.framework/Accelerate"


class Library(NamedTuple):
    """A BLAS: how its functions begin, and the function that, called with 1, has each call run on
    the thread that makes it.
    """

    path: str
    prefix: str
    single_thread: str


def installed() -> tuple[str, ...]:
    """The libraries this machine has, as target facts name them."""
    return () if _library() is None else (BLAS,)


def addresses(symbols: tuple[str, ...]) -> dict[str, int]:
    """The addresses of these functions in this process; CompileError if their library is
    missing.
    """
    if not symbols:
        return {}
    library = _library()
    if library is None:
        raise CompileError(
            f"the program calls {', '.join(symbols)} of {PACKAGE}, which is not installed here; "
            f"{installation.hint('blas')}, or compile the program on this machine"
        )
    functions = _load(library)
    return {symbol: functions[symbol] for symbol in symbols}


def _library() -> Library | None:
    """The BLAS of this machine: of macOS the one that comes with it, which alone may use what Apple
    silicon has for products; else the package's.
    """
    system: str = sys.platform  # or checkers of types call what follows unreachable on a Mac
    if system == "darwin":
        return Library(ACCELERATE, "", "BLASSetThreading")
    path = _path()
    if path is None:
        return None
    return Library(str(path), PREFIX, "scipy_openblas_set_num_threads")


@functools.cache
def _path() -> Path | None:
    """The shared library of the package; the package itself is not imported."""
    spec = find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    candidates = (
        # Importing the package would load it with threads of its own before anyone could say that
        # it may have one only.
        p
        for folder in folders or ()
        for p in Path(folder, "lib").glob("libscipy_openblas*")
    )
    return next(candidates, None)


@functools.cache
def _load(blas: Library) -> dict[str, int]:
    """The library's functions, by the names that kernels call. Each call runs on the thread that
    makes it: the team shares the work out, and threads of its own would spin for 0.1 s after it.
    """
    library = ctypes.CDLL(blas.path)
    single_thread = getattr(library, blas.single_thread, None)
    if single_thread is not None:  # Accelerate's is new in macOS 15
        single_thread(1)
    addresses = {}
    for symbol in SYMBOLS:
        function = getattr(library, blas.prefix + symbol.removeprefix(PREFIX))
        addresses[symbol] = ctypes.cast(function, ctypes.c_void_p).value or 0
    return addresses
