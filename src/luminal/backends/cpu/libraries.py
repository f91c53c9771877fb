"""Optional libraries whose functions kernels may call: found if installed, loaded at first use."""

from __future__ import annotations

import ctypes
import functools
from importlib.util import find_spec
from pathlib import Path

from luminal.base import installation
from luminal.base.errors import CompileError
from luminal.codegen.llvm_product import SYMBOLS

BLAS = "blas"  # as target facts name the library
PACKAGE = "scipy_openblas32"


def installed() -> tuple[str, ...]:
    """The libraries this machine has, as target facts name them."""
    return () if _path() is None else (BLAS,)


def addresses(symbols: tuple[str, ...]) -> dict[str, int]:
    """The addresses of these functions in this process; CompileError if their library is
    missing.
    """
    if not symbols:
        return {}
    path = _path()
    if path is None:
        raise CompileError(
            f"the program calls {', '.join(symbols)} of {PACKAGE}, which is not installed here; "
            f"{installation.hint('blas')}, or compile the program on this machine"
        )
    library = _load(path)
    return {symbol: library[symbol] for symbol in symbols}


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
def _load(path: Path) -> dict[str, int]:
    """The library's functions. It runs each call on the thread that makes it: the team shares the
    work out, and threads of its own would spin for 0.1 s after every call.
    """
    library = ctypes.CDLL(str(path))
    library.scipy_openblas_set_num_threads(1)
    pointers = {
        symbol: ctypes.cast(getattr(library, symbol), ctypes.c_void_p) for symbol in SYMBOLS
    }
    return {symbol: pointer.value or 0 for symbol, pointer in pointers.items()}
