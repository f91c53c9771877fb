"""NCCL through nccl4py's bindings: the only module that imports them."""

from __future__ import annotations

from typing import Any

from luminal.base import installation
from luminal.base.errors import CollectiveError, CompileError
from luminal.runtime.collectives.library import DTYPES, OPERATIONS, Library

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
        self._operations = {name: int(nccl.RedOp[name.capitalize()]) for name in OPERATIONS}

    def version(self) -> tuple[int, int, int]:
        number = self._nccl.get_version()
        return number // 10000, number // 100 % 100, number % 100

    def unique_id(self) -> bytes:
        return bytes(self._call("get_unique_id"))

    def init(self, size: int, rank: int, unique_id: bytes) -> Any:
        self._device.set_current()
        shared = self._nccl.UniqueId.from_buffer(bytearray(unique_id))
        return self._call("comm_init_rank", size, shared, rank)

    def trouble(self, comm: Any) -> str:
        result = self._call("comm_get_async_error", comm)
        if result in (self._nccl.Result.Success, self._nccl.Result.InProgress):
            return ""
        words: str = self._nccl.get_error_string(int(result))
        return f"{self.name}: {words}"

    def _call(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nccl, name)(*arguments)
        except self._nccl.NCCLError as error:
            raise CollectiveError(f"{self.name}: {name}: {_first(error)}") from None
