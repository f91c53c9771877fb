"""Sequences of several lengths as one batch: what recurrent layers take beside padded Tensors.

PyTorch's packed form lies step by step, without padding, so its shape follows from the lengths.
Here a batch stays padded, and the packed form is computed where somebody asks for it. Programs
have the shape of the padded batch then, whatever the lengths are, and lengths may be known in a run
only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from luminal.base.dtypes import int64, uint64
from luminal.base.errors import InputError, ShapeError
from luminal.frontend.foreign import absent
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import (
    Array,
    Branching,
    Extent,
    as_tensor_advice,
    describe,
    is_tensor,
    value_of,
)
from luminal.frontend.movement.indexing import elements_of, gather_at, noted
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.hlir.attributes import InputAttrs
from luminal.memory.as_tensor import outside
from luminal.memory.data import array_of
from luminal.shape.expression import Expression

FIELDS: tuple[str, ...] = ("data", "batch_sizes", "sorted_indices", "unsorted_indices")


class PackedSequence(Branching):
    """Sequences of several lengths, as torch.nn.utils.rnn.PackedSequence, whose four fields it has.

    Those are data (sum of lengths, ...), batch_sizes (steps,), and sorted_indices and
    unsorted_indices (batch,), None where the longest came first. It is a tuple of them in all but
    name. They are computed when they are read: what it holds is `padded` (steps, batch, ...), 0
    beyond each sequence, in the order in which they were given, and their `lengths`. Where lengths
    are Tensors that are known in a run only there are no fields, as their shapes would follow from
    the lengths.
    """

    padded: Tensor
    lengths: Lengths

    def __init__(
        self,
        data: Any,
        batch_sizes: Any = None,
        sorted_indices: Any = None,
        unsorted_indices: Any = None,
    ) -> None:
        if batch_sizes is None:  # PyTorch's other form: PackedSequence((data, batch_sizes))
            data, batch_sizes = data
        data = tensor_of("PackedSequence", data)
        order = sorted_indices
        if order is None and unsorted_indices is not None:
            order = np.argsort(_numbers("unsorted_indices", unsorted_indices, data.graph))
        elif order is not None:
            order = _numbers("sorted_indices", order, data.graph)
        sizes = _numbers("batch_sizes", batch_sizes, data.graph)
        self.lengths = Lengths.of_sizes(sizes, order, data)
        self.padded = self.lengths.padded(data)
        self.data = data

    @classmethod
    def of_padded(cls, padded: Tensor, lengths: Lengths) -> PackedSequence:
        """Sequences that lie padded with 0s, (steps, batch, ...)."""
        packed = cls.__new__(cls)
        packed.padded, packed.lengths = padded, lengths
        return packed

    def branches(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Trees of Tensors look into it: it is its padded batch and the lengths."""
        again = _packed_sorted if self.lengths.is_sorted else _packed
        return again, {"padded": self.padded, "lengths": self.lengths.tensor}

    @cached_property
    def data(self) -> Tensor:
        """The elements of all sequences, step by step: (sum of lengths, ...)."""
        return self.lengths.packed(self.padded)

    @property
    def batch_sizes(self) -> Tensor:
        """How many sequences have a step, by step: (steps,) int64."""
        return self.lengths.batch_sizes

    @property
    def sorted_indices(self) -> Tensor | None:
        """Sequences from the longest on: (batch,), or None where they were given so."""
        return self.lengths.sorted_indices

    @property
    def unsorted_indices(self) -> Tensor | None:
        """The place of each sequence among the sorted ones: (batch,), or None."""
        return self.lengths.unsorted_indices

    def to(self, *targets: Any, **options: Any) -> PackedSequence:
        """With elements of another dtype, as torch.nn.utils.rnn.PackedSequence.to."""
        return self.of_padded(self.padded.to(*targets, **options), self.lengths)

    def cpu(self) -> PackedSequence:
        """This itself, as a Tensor's `cpu`."""
        return self

    def _replace(self, **fields: Any) -> PackedSequence:
        """With other fields, as a NamedTuple's."""
        kept = {name: getattr(self, name) for name in FIELDS if name not in fields}
        return PackedSequence(**kept, **fields)

    # A tuple in all but name: one would hold all fields from the start.

    def __len__(self) -> int:
        return len(FIELDS)

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in FIELDS)

    def __getitem__(self, index: int | slice) -> Any:
        names = FIELDS[index]
        if isinstance(names, str):
            return getattr(self, names)
        return tuple(getattr(self, name) for name in names)

    def __getattr__(self, name: str) -> Any:
        raise absent(self, name, lambda known: False)

    def __repr__(self) -> str:
        return f"PackedSequence({describe(self.padded)}, padded, lengths={self.lengths!r})"


def _packed(padded: Any, lengths: Any, is_sorted: bool = False) -> PackedSequence:
    """What a tree held, again. Arrays, which a function under jit gives, become Tensors of the
    default graph.
    """
    if not is_tensor(padded):
        padded, lengths = (outside().tensor(x, copy=False) for x in (padded, lengths))
    counts = elements_of(lengths)
    return PackedSequence.of_padded(padded, Lengths(lengths, counts, is_sorted))


def _packed_sorted(padded: Any, lengths: Any) -> PackedSequence:
    return _packed(padded, lengths, is_sorted=True)


class Lengths:
    """How many steps each sequence of a batch has.

    `tensor` (batch,) int64 has them in a graph, and `counts` as numbers, or None where they are
    known in a run only. `is_sorted`: does the longest come first, by the caller's word?
    """

    def __init__(self, tensor: Tensor, counts: Array | None, is_sorted: bool) -> None:
        self.tensor, self.counts, self.is_sorted = tensor, counts, is_sorted
        self._shown = describe(tensor)  # as it was given

    @classmethod
    def of(cls, lengths: Any, batch: Tensor, is_sorted: bool) -> Lengths:
        """Takes a user's lengths of sequences that lie in `batch` (steps, batch, ...).

        Raises InputError and ShapeError for lengths that they cannot have.
        """
        tensor = _here(lengths, batch.graph).cast(int64)
        shape, count = tensor.extents, batch.extents[1]
        if tensor.ndim != 1 or (shape[0] != count and shape[0].is_const and count.is_const):
            raise ShapeError(
                f"lengths: {describe(tensor)} for {count} sequences; give one for each, ({count},)"
            )
        batch.graph.require(shape[0].eq(count), "one length for each sequence")
        held = cls(tensor, elements_of(tensor), is_sorted)
        if held.counts is None:
            held.tensor = lengths_up_to_steps(tensor, batch.extents[0])
        else:
            _check(held.counts, batch, is_sorted)
        return held

    @classmethod
    def of_sizes(cls, sizes: Array, order: Array | None, data: Tensor) -> Lengths:
        """Takes PyTorch's fields. Raises InputError where sizes are none of `data`'s."""
        if sizes.ndim != 1 or not sizes.size or sizes.min() < 1 or (np.diff(sizes) > 0).any():
            raise InputError(
                f"batch_sizes: {sizes.tolist()}; give how many sequences have each step: positive "
                "numbers that never grow"
            )
        if data.extents[0] != sizes.sum():
            raise InputError(
                f"batch_sizes: {sizes.tolist()} are {sizes.sum()} elements; data is "
                f"{describe(data)}"
            )
        batch = int(sizes[0])
        if order is not None and sorted(order.tolist()) != list(range(batch)):
            raise InputError(
                f"sorted_indices: {order.tolist()} does not name each of {batch} sequences once"
            )
        counts = np.empty(batch, np.int64)
        rows = np.arange(batch)
        counts[rows if order is None else order] = (rows < sizes[:, None]).sum(0)
        return cls(_here(counts, data.graph), counts, order is None)

    def __repr__(self) -> str:
        return self._shown if self.counts is None else str(self.counts.tolist())

    def reach(self, steps: Extent) -> Tensor:
        """Which sequences have a step: (steps, batch) bools."""
        return self.tensor.graph.arange(steps).unsqueeze(-1) < self.tensor

    # --- PyTorch's fields

    @cached_property
    def batch_sizes(self) -> Tensor:
        """How many sequences have a step, by step."""
        return noted(self.tensor, self._sizes)

    @cached_property
    def sorted_indices(self) -> Tensor | None:
        """The sequences, the longest first."""
        return None if self.is_sorted else noted(self.tensor, self._order)

    @cached_property
    def unsorted_indices(self) -> Tensor | None:
        """The place of each sequence among the sorted ones."""
        return None if self.is_sorted else noted(self.tensor, np.argsort(self._order))

    def packed(self, padded: Tensor) -> Tensor:
        """(steps, batch, ...) without padding, step by step, the longest first."""
        steps, rows = np.nonzero(np.arange(len(self._order)) < self._sizes[:, None])
        places = steps * len(self._order) + self._order[rows]
        return padded.flatten(0, 1).index_select(0, noted(self.tensor, places))

    def padded(self, data: Tensor) -> Tensor:
        """(sum of lengths, ...) as (steps, batch, ...) in the order of the lengths, with 0s."""
        sizes, order = self._sizes, self._order
        places = np.zeros((len(sizes), len(order)), np.int64)
        rows = np.arange(len(order))
        places[:, order] = np.where(
            rows < sizes[:, None], (np.cumsum(sizes) - sizes)[:, None] + rows, 0
        )
        flat = data.index_select(0, noted(self.tensor, places.reshape(-1)))
        padded = flat.reshape(*places.shape, *data.extents[1:])
        return masked(padded, self.reach(len(sizes)), 0)

    @cached_property
    def _sizes(self) -> Array:
        counts = self._known()
        sizes: Array = (counts > np.arange(counts.max())[:, None]).sum(1)
        return sizes

    @cached_property
    def _order(self) -> Array:
        counts = self._known()
        return np.arange(len(counts)) if self.is_sorted else np.argsort(-counts, stable=True)

    def _known(self) -> Array:
        if self.counts is None:
            raise InputError(
                f"PackedSequence: the lengths {self._shown} are known in a run only, and "
                "the shapes of data and batch_sizes follow from them; call layers and "
                "pad_packed_sequence with it, or give lengths as a list"
            )
        return self.counts


def masked(x: Tensor, reached: Tensor, value: float) -> Tensor:
    """x (steps, batch, ...) where `reached` (steps, batch) is true, else `value` in x's dtype."""
    other = x.graph.constant(value).cast(x.dtype)
    return where(reached.reshape(*reached.extents, *(1,) * (x.ndim - 2)), x, other)


def tensor_of(what: str, x: Any) -> Tensor:
    """A Tensor, or what a Parameter or a State is in what is recorded; InputError for others."""
    x = value_of(x)
    if not is_tensor(x):
        raise InputError(f"{what}: got a {type(x).__name__}; {as_tensor_advice(x)}")
    return x


def lengths_up_to_steps(lengths: Tensor, steps: Expression) -> Tensor:
    """The lengths. Where they are an Input, runs check that they lie in 0..steps."""
    node = lengths.value.node
    while node.op.name == "Cast":
        node = node.args[0].node
    if not isinstance(node.attrs, InputAttrs):
        return lengths
    # What runs check of an Input are indices: they are read of a table of all that they may be.
    table = lengths.graph.arange(steps + 1, dtype=lengths.dtype)
    return gather_at(table, lengths.extents, [lengths.cast(uint64)])


def _check(counts: Array, batch: Tensor, is_sorted: bool) -> None:
    """Raises InputError unless each length is that of a sequence in the batch."""
    steps = batch.extents[0]
    if not len(counts):
        raise InputError(f"lengths: none are given; {describe(batch)} has no sequence")
    for k, count in enumerate(counts.tolist()):
        if count < 1 or (steps.is_const and count > steps.value):
            raise InputError(f"lengths: the {k}th is {count}, which is not within 1..{steps}")
    if is_sorted and (np.diff(counts) > 0).any():
        raise InputError(
            f"lengths: {counts.tolist()} grow, and enforce_sorted asks for the longest first; sort "
            "the sequences, or pass enforce_sorted=False"
        )


def _here(numbers: Any, graph: Recorder) -> Tensor:
    """Numbers in a graph: on the default graph an Input, so that others need no other program."""
    numbers = value_of(numbers)
    if is_tensor(numbers):
        return graph.constant(numbers)
    array = array_of(numbers, int64, "lengths")
    return graph.tensor(array) if graph.is_eager else graph.constant(array)


def _numbers(name: str, x: Any, graph: Recorder) -> Array:
    """The elements of a field; raises InputError where they are known in a run only."""
    tensor = _here(x, graph)
    elements = elements_of(tensor)
    if elements is None:
        raise InputError(
            f"PackedSequence: {name}, {describe(tensor)}, is known in a run only, and shapes "
            "follow from it; pack with pack_padded_sequence, or give numbers"
        )
    return elements
