"""RCCL through ROCm's bindings: the only module that imports these."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from luminal.base import installation
from luminal.base.errors import CollectiveError, CompileError
from luminal.runtime.collectives.library import DTYPES, Library
from luminal.runtime.collectives.tickets import Monoid

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
            name: getattr(operations, f"nccl{name.capitalize()}")
            for name in ("sum", "prod", "max", "min")
        }

    def version(self) -> tuple[int, int, int]:
        number = self._do(self._rccl.ncclGetVersion)
        return number // 10000, number // 100 % 100, number % 100

    def unique_id(self) -> bytes:
        shared = self._do(self._rccl.ncclGetUniqueId)
        return ctypes.string_at(int(shared), shared.c_sizeof())

    def init(self, size: int, rank: int, unique_id: bytes) -> Any:
        self._make_current()
        return self._do(self._rccl.ncclCommInitRank, size, bytearray(unique_id), rank)

    def all_reduce(
        self, comm: Any, source: int, target: int, count: int, dtype: str, by: Monoid, queue: int
    ) -> None:
        kind, operation = self._dtypes[dtype], self._operations[by]
        reduce = self._rccl.ncclAllReduce
        self._do(reduce, source, target, count, kind, operation, comm, queue)

    def reduce_scatter(
        self, comm: Any, source: int, target: int, count: int, dtype: str, by: Monoid, queue: int
    ) -> None:
        kind, operation = self._dtypes[dtype], self._operations[by]
        reduce = self._rccl.ncclReduceScatter
        self._do(reduce, source, target, count, kind, operation, comm, queue)

    def all_gather(
        self, comm: Any, source: int, target: int, count: int, dtype: str, queue: int
    ) -> None:
        gather = self._rccl.ncclAllGather
        self._do(gather, source, target, count, self._dtypes[dtype], comm, queue)

    def send(self, comm: Any, source: int, count: int, dtype: str, peer: int, queue: int) -> None:
        self._do(self._rccl.ncclSend, source, count, self._dtypes[dtype], peer, comm, queue)

    def receive(
        self, comm: Any, target: int, count: int, dtype: str, peer: int, queue: int
    ) -> None:
        self._do(self._rccl.ncclRecv, target, count, self._dtypes[dtype], peer, comm, queue)

    @contextmanager
    def together(self) -> Iterator[None]:
        self._do(self._rccl.ncclGroupStart)
        try:
            yield
        finally:
            self._do(self._rccl.ncclGroupEnd)

    def trouble(self, comm: Any) -> str:
        result = ctypes.c_int()
        self._do(self._rccl.ncclCommGetAsyncError, comm, ctypes.addressof(result))
        status = self._rccl.ncclResult_t(result.value)
        is_well = status.name in ("ncclSuccess", "ncclInProgress")
        return "" if is_well else f"{self.name}: {status.name}"

    def abort(self, comm: Any) -> None:
        self._do(self._rccl.ncclCommAbort, comm)

    def _do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        status, *values = function(*arguments)
        if status != self._rccl.ncclResult_t.ncclSuccess:
            raise CollectiveError(f"{self.name}: {function.__name__}: {status.name}")
        return values[0] if values else None
