"""RCCL through ROCm's bindings: the only module that imports these."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib import import_module
from typing import Any

from luminal.base import installation
from luminal.base.errors import CollectiveError, CompileError
from luminal.runtime.collectives.library import DTYPES, OPERATIONS, Library

NAME = "RCCL"


def library(make_current: Callable[[], object]) -> Rccl:
    """RCCL for the device that a call makes current. Raises CompileError where it is not there."""
    try:
        return Rccl(_bindings(), make_current)
    except (ImportError, OSError, RuntimeError) as error:  # the last two where there is no library
        raise CompileError(
            f"RCCL, which moves values between AMD's devices, cannot be used "
            f"({str(error).partition(chr(10))[0]}); {installation.hint('rccl')}"
        ) from None


def version() -> str:
    """The version of NCCL that the installed RCCL is one of. Raises CompileError where none is."""
    return ".".join(map(str, library(lambda: None).version()))


def _bindings() -> Any:
    rccl: Any = import_module("rocm.bindings.rccl")  # late: an extra
    rccl.ncclGetVersion()  # looks for the library
    return rccl


class Rccl(Library):
    """RCCL's functions, which are NCCL's by name."""

    name = NAME

    def __init__(self, rccl: Any, make_current: Callable[[], object]) -> None:
        self._rccl, self._make_current = rccl, make_current
        kinds, operations = rccl.ncclDataType_t, rccl.ncclRedOp_t
        self._dtypes = {name: getattr(kinds, f"nccl{name.capitalize()}") for name in DTYPES}
        self._operations = {
            name: getattr(operations, f"nccl{name.capitalize()}") for name in OPERATIONS
        }

    def version(self) -> tuple[int, int, int]:
        number = self._call("get_version")
        return number // 10000, number // 100 % 100, number % 100

    def unique_id(self) -> bytes:
        shared = self._call("get_unique_id")
        return ctypes.string_at(int(shared), shared.c_sizeof())

    def init(self, size: int, rank: int, unique_id: bytes) -> Any:
        self._make_current()
        return self._call("comm_init_rank", size, bytearray(unique_id), rank)

    def trouble(self, comm: Any) -> str:
        result = ctypes.c_int()
        self._call("comm_get_async_error", comm, ctypes.addressof(result))
        status = self._rccl.ncclResult_t(result.value)
        is_well = status.name in ("ncclSuccess", "ncclInProgress")
        return "" if is_well else f"{self.name}: {self._words(status)}"

    def _call(self, name: str, *arguments: Any) -> Any:
        # NCCL's own spelling: ncclCommInitRank is what nccl4py calls comm_init_rank.
        name = f"nccl{name.title().replace('_', '')}"
        status, *values = getattr(self._rccl, name)(*arguments)
        if status != self._rccl.ncclResult_t.ncclSuccess:
            raise CollectiveError(f"{self.name}: {name}: {self._words(status)}")
        return values[0] if values else None

    def _words(self, status: Any) -> str:
        _, words = self._rccl.ncclGetErrorString(status)
        return f"{status.name} ({words})"
