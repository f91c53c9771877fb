"""Packed: a weight that lies in memory as integers and scales, and is read as floats.

Its parts are Weights of their own and the value is what ordinary operations make of them: nothing
below knows of packing but one rule (`luminal.select.packed`), which keeps such a value out of
memory. So a new format is one function over Tensors, and every backend has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from luminal import dtypes
from luminal.errors import DTypeError, InputError
from luminal.hlir.memory import Array, Buffer, HostBuffer
from luminal.hlir.state import Parameter

if TYPE_CHECKING:
    from luminal.frontend.graph import Recorder
    from luminal.frontend.tensor import Tensor

Parts = Mapping[str, Parameter]


class Packed(Parameter):
    """A float32 Parameter of `shape` whose value `decode` makes of `parts`, by name.

    `kind` names the format. `unpack` gives the same value as an array, bit for bit. It is not set
    and not trained: pack other values instead.
    """

    def __init__(
        self,
        kind: str,
        shape: Sequence[int],
        parts: Mapping[str, Array],
        decode: Callable[[Mapping[str, Tensor], tuple[int, ...]], Tensor],
        unpack: Callable[[], Array],
        nbytes: int,
        name: str | None = None,
    ) -> None:
        super().__init__(tuple(shape), dtypes.float32, name, requires_grad=False)
        self.kind, self.nbytes = kind, nbytes
        self.parts = {part: Parameter(array, name=part) for part, array in parts.items()}
        self._decode, self._unpack = decode, unpack

    def recorded(self, graph: Recorder, name: str) -> Tensor:
        """Its value in a graph, where its parts are Weights called `name` and what they are."""
        parts = {part: graph.weight_of(held, f"{name}.{part}") for part, held in self.parts.items()}
        return self._decode(parts, self.shape)

    @property
    def has_value(self) -> bool:
        """Always."""
        return True

    @property
    def buffer(self) -> Buffer:
        """A copy of its value on the host: programs read its parts."""
        return HostBuffer(self._unpack())

    @buffer.setter
    def buffer(self, buffer: Buffer) -> None:
        self._refuse()

    def set(self, value: Any) -> None:
        """Raises DTypeError."""
        self._refuse()

    def assigned(self) -> None:
        """Raises InputError: it cannot be trained."""
        raise InputError(
            f"{self.name}: is packed as {self.kind}, which no program can assign; train a model of "
            "floats, and quantize that"
        )

    def to(self, device: Any) -> Packed:
        """Moves its parts."""
        for part in self.parts.values():
            part.to(device)
        return self

    def rounded(self, dtype: dtypes.DType) -> Packed:
        """Itself: what it is computed in follows from its format."""
        return self

    def _refuse(self) -> NoReturn:
        raise DTypeError(
            f"{self.name}: is packed as {self.kind} and keeps its value; load the file without "
            "keep_quantized, or put another Parameter in its place"
        )

    def __repr__(self) -> str:
        return f"Packed({self.name}: {self.kind}{list(self.shape)})"


def read_only(array: Array) -> Array:
    """The array, which Parameters keep by reference then."""
    found = np.ascontiguousarray(array)
    if found.flags.writeable:
        found = found.view()
        found.flags.writeable = False
    return found
