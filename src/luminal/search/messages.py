"""Messages between a search and its processes: pickles, sent through pipes (`runtime.pipes`).

Parameters and States travel as references: their arrays lie in one shared file that a process maps.
Only a search and the processes it started itself speak this; nothing else is ever unpickled.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import IO, Any, NamedTuple

import cloudpickle

from luminal.base.records import dataclass
from luminal.memory.parameter import Parameter
from luminal.memory.state import State


class SharedArray(NamedTuple):
    """An array in the shared file."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Operands:
    """What programs run on. Inputs and outputs are in the order in which a run takes them."""

    dims: dict[str, int]
    inputs: tuple[tuple[str, SharedArray], ...]
    outputs: tuple[tuple[str, tuple[int, ...], str], ...]  # name, shape, dtype
    parameters: dict[int, SharedArray]
    states: dict[int, SharedArray]


@dataclass(frozen=True, slots=True)
class Failure:
    """What a process answers in place of a result."""

    text: str


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def persistent_id(self, obj: Any) -> tuple[str, int, tuple[int, ...], str, str] | None:
        if isinstance(obj, Parameter):
            return "parameter", obj.id, obj.shape, obj.dtype.name, obj.name
        if isinstance(obj, State):
            return "state", obj.id, obj.shape, obj.dtype.name, obj.name
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], resolve: Callable[[tuple[Any, ...]], Any]) -> None:
        super().__init__(file)
        self._resolve = resolve

    def persistent_load(self, pid: Any) -> Any:
        return self._resolve(pid)


def pack(message: Any) -> bytes:
    """The message as bytes. Raises pickle.PicklingError or TypeError for what cannot travel."""
    stream = io.BytesIO()
    _Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(message)
    return stream.getvalue()


def unpack(data: bytes, resolve: Callable[[tuple[Any, ...]], Any]) -> Any:
    """The message; `resolve` finds what references stand for."""
    return _Unpickler(io.BytesIO(data), resolve).load()
