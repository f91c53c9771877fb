"""Packed: a weight that lies in memory as integers and scales, and is read as floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import DTypeError, InputError, LoadError
from luminal.base.records import dataclass
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.memory.arrays import Array, Buffer, HostBuffer, MemorySpace
from luminal.memory.parameter import Parameter
from luminal.memory.row_order import Interleaved

if TYPE_CHECKING:
    from luminal.frontend.matrices.block_scaled import Blocks
    from luminal.frontend.tensor import Tensor


Arrays = Mapping[str, Array]


def _as_they_are(data: Arrays) -> Arrays:
    return data


@dataclass(frozen=True, slots=True)
class Format:
    """How weights are packed: what makes float32 values of a shape of arrays by name, its data.

    `codes` records it, of Weights that hold what `parts` gives for the data (the same memory);
    `unpack` gives the same as an array, bit for bit. `blocks` records it as what chips multiply
    that know blocks with scales, if it is that. Functions of modules: weights are pickled.
    """

    kind: str
    codes: Callable[[Mapping[str, Tensor]], Codes]
    unpack: Callable[[Arrays, tuple[int, ...]], Array]
    parts: Callable[[Arrays], Arrays] = _as_they_are
    blocks: Callable[[Mapping[str, Tensor]], Blocks] | None = None


def _as_unrounded(g: Tensor, y: Tensor, weight: Packed, x: Tensor) -> Tensor:
    """The gradient of x where its rounding, whose own is zero, is passed over."""
    return (g @ g.graph.packed(weight)).cast(x.dtype)


# A dtype whose load decodes was the alternative. It would touch every table of dtypes, both
# interpreters, addresses (a block is no multiple of its values), layouts and every renderer, once
# for each format. As operations on integers, formats run on all backends, fuse, and stay visible to
# rules: a product of codes is one of int8.
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
        # The parts are views of the data: only the data travels, and the parts are made anew.
        return Packed, (self.format, self.shape, self._data, self.name, self.dtype, self._order)

    @property
    def nbytes(self) -> int:
        """The bytes of the codes and scales in memory."""
        return sum(array.nbytes for array in self._data.values())

    @property
    def data_names(self) -> dict[str, str]:
        """The ends of names in a state_dict, "int8.codes", "q4_0.blocks", and what they name."""
        return {f"{self.kind.lower()}.{part}": part for part in self._data}

    @property
    def data_dict(self) -> dict[str, Array]:
        """The codes and scales under these names; copies where rows lie in another order."""
        order = self._order
        return {
            end: self._data[part] if order is None else order.value(self._data[part])
            for end, part in self.data_names.items()
        }

    def loaded(self, data: Arrays) -> dict[str, Array]:
        """Data under the names of `data_dict`, for `load`. LoadError if it is of other types."""
        arrays = {}
        for end, part in self.data_names.items():
            array, mine = np.asarray(data[end]), self._data[part]
            if (array.dtype, array.shape) != (mine.dtype, mine.shape):
                raise LoadError(
                    f"{self.name}.{end}: expected {mine.dtype}{list(mine.shape)}, got "
                    f"{array.dtype}{list(array.shape)}"
                )
            if self._order is not None:
                array = self._order.rows(array)
            arrays[part] = _kept(array.copy() if array.flags.writeable else array)
        return arrays

    def load(self, data: dict[str, Array]) -> None:
        """Takes what `loaded` gave; programs that read it see it from their next run on."""
        self._data = data
        for part, array in self.format.parts(data).items():
            self.parts[part].lies(array, self._order)

    @differentiated(_as_unrounded)
    def product(self, x: Tensor) -> Tensor:
        """`x @ value.mT` by bytes, to which x is rounded; of decoded values where rows are no whole
        blocks.
        """
        codes = x.graph.codes(self)
        if codes.has_products:
            return codes.product(x).cast(dtypes.promote(x.dtype, self.dtype))
        return x @ x.graph.packed(self).mT

    @differentiated(_as_unrounded)
    def block_product(self, x: Tensor) -> Tensor:
        """`x @ value.mT` by the blocks of its format, to which x is rounded; of decoded values if
        it has none.
        """
        if self.format.blocks is None:
            return x @ x.graph.packed(self).mT
        blocks = self.format.blocks(x.graph.parts_of(self))
        return blocks.product(x).cast(dtypes.promote(x.dtype, self.dtype))

    @property
    def has_value(self) -> bool:
        """A packed weight always has a value."""
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
        """Raises DTypeError: a packed weight cannot be set."""
        self._refuse()

    def assigned(self) -> None:
        """Raises InputError: it cannot be trained."""
        raise InputError(
            f"{self.name}: is packed as {self.kind}, which no program can assign; train a model of "
            "floats, and quantize that"
        )

    def to(self, device: Any) -> Packed:
        """Gives itself: packed data stay on the host, where programs of a device share one copy.

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
    # Files may put blocks at odd addresses, where 16-bit loads fail on some machines.
    return read_only(array.copy() if array.ctypes.data % 2 else array)


def read_only(array: Array) -> Array:
    """The array, which Parameters keep by reference then."""
    contiguous = np.ascontiguousarray(array)
    if contiguous.flags.writeable:
        contiguous = contiguous.view()
        contiguous.flags.writeable = False
    return contiguous


# --- codes ----------------------------------------------------------------------------------------
#
# A weight is `scale * (code - zero)`, plus `more` or less `less`, with a scale for each group of
# neighbours. Decoded it is floats. Multiplied as it is (`product`) the other factor is rounded to
# bytes as well, each BLOCK with a scale of its own, and what is left are sums of products of bytes,
# which machines compute many times as fast as those of floats:
#
#     sum over groups of  scale_x * scale * (sum of x * code - zero * sum of x)
#
# The user chooses so, since it rounds what runs through the model to 8 bits: it is what programs do
# that such files are made for. All of it is ordinary operations on integers, exact but for scales.


BLOCK = 32  # neighbours of a row of x that share a scale
GREATEST = 127  # code of x


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """`codes` (rows, groups ..., values ...) are bytes, signed or not, or floats of 8 bits;
    `scale`, `more` and `less` are float32 of the same number of dims, 1 along those of a group's
    values.
    """

    codes: Tensor
    scale: Tensor
    zero: int = 0
    more: Tensor | None = None
    less: Tensor | None = None

    def decoded(self) -> Tensor:
        """float32 values of the codes' shape."""
        codes = self.codes.cast(dtypes.int8) - self.zero if self.zero else self.codes
        value = self.scale * codes.cast(dtypes.float32)
        if self.more is not None:
            value = value + self.more
        return value if self.less is None else value - self.less

    @property
    def has_products(self) -> bool:
        """Are they integers, whose groups and blocks of x share their bounds?"""
        if self.codes.dtype.is_float:
            return False
        groups, size = self._groups()
        row = prod(groups) * size == prod(n.value for n in self.codes.extents[1:])
        return row and (size == BLOCK or (2 * size == BLOCK and groups[-1:] == (2,)))

    def product(self, x: Tensor) -> Tensor:
        """`x @ values.mT` for x (..., length of a row) of floats, rounded to bytes: float32."""
        groups, size = self._groups()
        batch = x.extents[:-1]
        q, scale_x = _rounded(x.cast(dtypes.float32).reshape(*batch, -1, BLOCK))
        q = q.reshape(*batch, *groups, size)
        whole = groups if size == BLOCK else (*groups[:-1], 1)
        scale_x = scale_x.reshape(*batch, *whole)
        codes, zero = self.codes, self.zero
        if codes.dtype is dtypes.int8:  # dots take one factor without signs
            codes, zero = codes.bitcast(dtypes.uint8) ^ 128, zero + 128
        rows_last = (*range(1, len(groups) + 1), len(groups) + 1, 0)
        q = q.cast(dtypes.int32)
        wide = codes.cast(dtypes.int32).reshape(-1, *groups, size).permute(*rows_last)
        # int8 times uint8 into int32: the shape of the dot instructions (VNNI, SDOT), found by its
        # types.
        dots = q.unsqueeze(-2) @ wide
        sums = q.sum(-1).cast(dtypes.int32)
        # sum x (code - zero) = sum x code - zero sum x: the second sum is one for all rows.
        if zero:
            dots = dots - (sums * zero).unsqueeze(-1).unsqueeze(-1)
        steps = dots.squeeze(-2).cast(dtypes.float32) * scale_x.unsqueeze(-1)
        over = tuple(range(-len(groups) - 1, -1))
        y = steps * _rows_last(self.scale, groups)
        x_sums = (scale_x * sums.cast(dtypes.float32)).unsqueeze(-1)
        if self.more is not None:
            y = y + x_sums * _rows_last(self.more, groups)
        if self.less is not None:
            y = y - x_sums * _rows_last(self.less, groups)
        return y.sum(over)

    def _groups(self) -> tuple[tuple[int, ...], int]:
        """The dims of groups, and the values of each."""
        shape = [extent.value for extent in self.codes.extents[1:]]
        inner = [extent.value for extent in self.scale.extents[1:]]
        kept = max(k for k, n in enumerate((0, *inner)) if n != 1)
        groups, size = tuple(shape[:kept]), prod(shape[kept:])
        return (groups, size) if size < BLOCK else ((*groups, size // BLOCK), BLOCK)


def _rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Blocks along the last dim as bytes, and their scales (..., blocks)."""
    scale = x.abs().amax(-1, keepdim=True) / GREATEST
    # A block of zeros has the scale 0; divided by 1 its codes are 0 as well.
    codes = (x / scale.where(scale != 0, 1.0)).round().clip(-GREATEST, GREATEST)
    return codes.cast(dtypes.int8), scale.squeeze(-1)


def _rows_last(scale: Tensor, groups: tuple[int, ...]) -> Tensor:
    """(rows, groups ..., 1 ...) as (groups ..., rows)."""
    rows, *dims = scale.extents
    kept = [n.value for n in dims[: len(groups)]] + [1] * (len(groups) - len(dims))
    whole = scale.reshape(rows, *kept).expand(rows, *groups)
    return whole.permute(*range(1, len(groups) + 1), 0)
