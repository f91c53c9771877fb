"""NCCL through nccl4py's bindings: the only module that imports them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from luminal.base import installation
from luminal.base.errors import CollectiveError, CompileError
from luminal.runtime.collectives.library import DTYPES, Library
from luminal.runtime.collectives.tickets import Monoid

NAME = "NCCL"


def library(device: Any) -> Nccl:
    """NCCL for a device of cuda-core. Raises CompileError where it is not installed."""
    try:
        return Nccl(_bindings(), device)
    except (ImportError, OSError, RuntimeError) as error:  # the last two where there is no library
        raise CompileError(
            f"NCCL, which moves values between NVIDIA's devices, cannot be used ({_first(error)}); "
            f"{installation.hint('nccl')}"
        ) from None


def version() -> str:
    """The version of NCCL that is installed. Raises CompileError where none is."""
    return ".".join(map(str, library(None).version()))


def _bindings() -> Any:
    from nccl.bindings import nccl  # late: an extra

    nccl.get_version()  # looks for the library
    return nccl


def _first(error: BaseException) -> str:
    return str(error).partition("\n")[0]


class Nccl(Library):
    """NCCL's functions; `device` has to be current where a communicator begins."""

    name = NAME

    def __init__(self, nccl: Any, device: Any) -> None:
        self._nccl, self._device = nccl, device
        self._dtypes = {name: int(nccl.DataType[name.capitalize()]) for name in DTYPES}
        self._operations = {
            name: int(nccl.RedOp[name.capitalize()]) for name in ("sum", "prod", "max", "min")
        }

    def version(self) -> tuple[int, int, int]:
        number = self._nccl.get_version()
        return number // 10000, number // 100 % 100, number % 100

    def unique_id(self) -> bytes:
        return bytes(self._do(self._nccl.get_unique_id))

    def init(self, size: int, rank: int, unique_id: bytes) -> Any:
        self._device.set_current()
        shared = self._nccl.UniqueId.from_buffer(bytearray(unique_id))
        return self._do(self._nccl.comm_init_rank, size, shared, rank)

    def all_reduce(
        self, comm: Any, source: int, target: int, count: int, dtype: str, by: Monoid, queue: int
    ) -> None:
        kind, operation = self._dtypes[dtype], self._operations[by]
        self._do(self._nccl.all_reduce, source, target, count, kind, operation, comm, queue)

    def reduce_scatter(
        self, comm: Any, source: int, target: int, count: int, dtype: str, by: Monoid, queue: int
    ) -> None:
        kind, operation = self._dtypes[dtype], self._operations[by]
        self._do(self._nccl.reduce_scatter, source, target, count, kind, operation, comm, queue)

    def all_gather(
        self, comm: Any, source: int, target: int, count: int, dtype: str, queue: int
    ) -> None:
        self._do(self._nccl.all_gather, source, target, count, self._dtypes[dtype], comm, queue)

    def send(self, comm: Any, source: int, count: int, dtype: str, peer: int, queue: int) -> None:
        self._do(self._nccl.send, source, count, self._dtypes[dtype], peer, comm, queue)

    def receive(
        self, comm: Any, target: int, count: int, dtype: str, peer: int, queue: int
    ) -> None:
        self._do(self._nccl.recv, target, count, self._dtypes[dtype], peer, comm, queue)

    @contextmanager
    def together(self) -> Iterator[None]:
        self._do(self._nccl.group_start)
        try:
            yield
        finally:
            self._do(self._nccl.group_end)

    def trouble(self, comm: Any) -> str:
        result = self._do(self._nccl.comm_get_async_error, comm)
        if result in (self._nccl.Result.Success, self._nccl.Result.InProgress):
            return ""
        words: str = self._nccl.get_error_string(int(result))
        return f"{self.name}: {words}"

    def abort(self, comm: Any) -> None:
        self._do(self._nccl.comm_abort, comm)

    def _do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._nccl.NCCLError as error:
            raise CollectiveError(f"{self.name}: {function.__name__}: {_first(error)}") from None
