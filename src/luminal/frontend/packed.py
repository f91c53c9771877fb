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
from luminal.errors import DTypeError, InputError, LoadError
from luminal.frontend.derivatives import differentiated
from luminal.hlir.memory import Array, Buffer, HostBuffer, MemorySpace
from luminal.hlir.row_order import Interleaved
from luminal.hlir.state import Parameter
from luminal.records import dataclass

if TYPE_CHECKING:
    from luminal.frontend.codes import Codes
    from luminal.frontend.graph import Recorder
    from luminal.frontend.tensor import Tensor

Arrays = Mapping[str, Array]


def _as_they_are(data: Arrays) -> Arrays:
    return data


@dataclass(frozen=True, slots=True)
class Format:
    """How weights are packed: what makes float32 values of a shape of arrays by name, its data.

    `codes` records it, of Weights that hold what `parts` gives for the data (the same memory);
    `unpack` gives the same as an array, bit for bit. Functions of modules: weights are pickled.
    """

    kind: str
    codes: Callable[[Mapping[str, Tensor]], Codes]
    unpack: Callable[[Arrays, tuple[int, ...]], Array]
    parts: Callable[[Arrays], Arrays] = _as_they_are


def _as_unrounded(g: Tensor, y: Tensor, weight: Packed, x: Tensor) -> Tensor:
    """The gradient of x where its rounding, whose own is zero, is passed over."""
    return (g @ g.graph.packed(weight)).cast(x.dtype)


class Packed(Parameter):
    """A Parameter of `shape` whose value is decoded from `data`, and rounded to `dtype`.

    It is not set and not trained: pack other values, or `load` other data. `order`: how the rows
    of all its data lie, where that is not as in the value.
    """

    def __init__(
        self,
        format: Format,
        shape: Sequence[int],
        data: Arrays,
        name: str | None = None,
        dtype: dtypes.DType = dtypes.float32,
        order: Interleaved | None = None,
    ) -> None:
        super().__init__(tuple(shape), dtype, name, requires_grad=False)
        self.format, self.kind = format, format.kind
        self._data = {part: _kept(array) for part, array in data.items()}
        self._order = order
        parts = format.parts(self._data)
        self.parts = {part: Parameter(array, name=part) for part, array in parts.items()}
        for held in self.parts.values():
            held.is_part, held.order = True, order

    def __reduce__(self) -> tuple[Any, ...]:
        return Packed, (self.format, self.shape, self._data, self.name, self.dtype, self._order)

    @property
    def nbytes(self) -> int:
        """Of its data."""
        return sum(array.nbytes for array in self._data.values())

    @property
    def data_names(self) -> dict[str, str]:
        """The ends of names in a state_dict, "int8.codes", "q4_0.blocks", and what they name."""
        return {f"{self.kind.lower()}.{part}": part for part in self._data}

    @property
    def data_dict(self) -> dict[str, Array]:
        """Its data under these names; copies where rows lie in another order."""
        order = self._order
        return {
            end: self._data[part] if order is None else order.value(self._data[part])
            for end, part in self.data_names.items()
        }

    def loaded(self, data: Arrays) -> dict[str, Array]:
        """Data under the names of `data_dict`, for `load`. LoadError if it is of other types."""
        found = {}
        for end, part in self.data_names.items():
            array, mine = np.asarray(data[end]), self._data[part]
            if (array.dtype, array.shape) != (mine.dtype, mine.shape):
                raise LoadError(
                    f"{self.name}.{end}: expected {mine.dtype}{list(mine.shape)}, got "
                    f"{array.dtype}{list(array.shape)}"
                )
            if self._order is not None:
                array = self._order.rows(array)
            found[part] = _kept(array.copy() if array.flags.writeable else array)
        return found

    def load(self, data: dict[str, Array]) -> None:
        """Takes what `loaded` gave; programs that read it see it from their next run on."""
        self._data = data
        for part, array in self.format.parts(data).items():
            self.parts[part].lies(array, self._order)

    def codes(self, graph: Recorder, name: str) -> Codes:
        """What it is made of in a graph, where its parts are Weights called `name` and what they
        are.
        """
        parts = {part: graph.weight_of(held, f"{name}.{part}") for part, held in self.parts.items()}
        return self.format.codes(parts)

    @differentiated(_as_unrounded)
    def product(self, x: Tensor) -> Tensor:
        """`x @ value.mT` by bytes, to which x is rounded; of decoded values where rows are no whole
        blocks.
        """
        codes = x.graph.codes(self)
        if codes.has_products:
            return codes.product(x).cast(dtypes.promote(x.dtype, self.dtype))
        return x @ x.graph.packed(self).mT

    @property
    def has_value(self) -> bool:
        """Always."""
        return True

    @property
    def buffer(self) -> Buffer:
        """A copy of its value on the host: programs read its parts."""
        with np.errstate(over="ignore"):
            value = self.format.unpack(self._data, self.shape)
            if self._order is not None:
                value = self._order.value(value)
            return HostBuffer(value.astype(self.dtype.numpy, copy=False))

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
        """Its data stay on the host, of which programs of a device share one copy there.

        Raises InputError for a device that cannot be used.
        """
        MemorySpace.by_name(device)
        return self

    def rounded(self, dtype: dtypes.DType) -> Packed:
        """One of the same data, whose value is rounded to `dtype`."""
        return Packed(self.format, self.shape, self._data, self.name, dtype, self._order)

    def _refuse(self) -> NoReturn:
        raise DTypeError(
            f"{self.name}: is packed as {self.kind} and cannot be set to floats; set them before "
            "it is packed (a file: load it without keep_quantized), or put a Parameter in its place"
        )

    def __repr__(self) -> str:
        return f"Packed({self.name}: {self.kind}{list(self.shape)})"


def _kept(array: Array) -> Array:
    """The array as `read_only`, where numbers of 16 bits can be read."""
    return read_only(array.copy() if array.ctypes.data % 2 else array)


def read_only(array: Array) -> Array:
    """The array, which Parameters keep by reference then."""
    found = np.ascontiguousarray(array)
    if found.flags.writeable:
        found = found.view()
        found.flags.writeable = False
    return found
