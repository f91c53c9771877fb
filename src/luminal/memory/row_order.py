"""Weights that lie in memory otherwise than in their value: complex numbers, rows in another order.

Complex numbers lie as pairs of floats, which is all that programs know of.

Attention turns features of a head in pairs. Hugging Face's models pair row i of a head with
i + half; GGUF's files of the same models have both side by side. To lay such rows anew takes as
much memory as they do, and of a start the time until the machine has found that much; to read them
where they are costs a product nothing. So they stay mapped, and whoever asks a Parameter for its
value, in a graph or as an array, gets it in the order of all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from luminal.base.complex_dtypes import ComplexDType
from luminal.base.records import dataclass
from luminal.memory.arrays import Array


# The alternative is to lay the rows anew when the file is loaded: a tenth of the weights, 0.06 s of
# a start, and 0.2 to 0.5 where a virtual machine has to get its memory back from the host. Panels
# of weights are copied anyway, and read the rows wherever they lie.
@dataclass(frozen=True, slots=True)
class Interleaved:
    """The order in which, for each of `heads`, rows of one half lie each before its partner in the
    other half. Takes and gives an Array, or a Tensor.
    """

    heads: int

    def value(self, rows: Any) -> Any:
        """The rows that lie so in memory, in the order of the value."""
        return self._swapped(rows, self._half(rows), 2)

    def rows(self, value: Any) -> Any:
        """The value as its rows lie in memory: the inverse of `value`."""
        return self._swapped(value, 2, self._half(value))

    def _half(self, rows: Any) -> int:
        return int(rows.shape[0]) // (2 * self.heads)

    def _swapped(self, rows: Any, first: int, last: int) -> Any:
        # Swapping (half, 2) and swapping (2, half) are each other's inverse.
        split = rows.reshape(self.heads, first, last, *rows.shape[1:])
        return split.swapaxes(1, 2).reshape(*rows.shape)


@dataclass(frozen=True, slots=True)
class PairsOf:
    """Complex numbers that lie as (..., 2) of floats. Takes and gives an Array or a Tensor."""

    dtype: ComplexDType

    def value(self, rows: Any) -> Any:
        """The complex numbers that lie so; of an Array in the same memory."""
        if isinstance(rows, np.ndarray):
            return rows.view(self.dtype.numpy)[..., 0]
        return rows._paired()

    def rows(self, value: Any) -> Any:
        """Complex numbers as they lie, of an Array in the same memory: the inverse of `value`."""
        if not isinstance(value, np.ndarray):
            return value._apart()
        # In one memory, however it lies: of each number the real part comes first.
        real = value.real
        shape, strides = (*real.shape, 2), (*real.strides, real.itemsize)
        return as_strided(real, shape, strides, writeable=value.flags.writeable)


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """An array as it lies in memory, and how. As an array (`np.asarray`) it is the value, a copy;
    `Module.load_state_dict` lets a Parameter keep the memory.
    """

    memory: Array
    order: Interleaved

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return tuple(self.memory.shape)

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return self.memory.ndim

    @property
    def dtype(self) -> Any:
        """The dtype of the value's elements."""
        return self.memory.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("rows that lie in another order are an array only as a copy")
        return np.asarray(self.order.value(self.memory), dtype)
