"""torch.nn.utils.rnn: sequences of several lengths, padded to one batch and packed for layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from luminal.base.errors import InputError, ShapeError
from luminal.frontend.handle import Extent, describe, is_tensor, value_of
from luminal.frontend.movement.indexing import elements_of
from luminal.frontend.movement.padding import pad
from luminal.frontend.movement.views import stack
from luminal.frontend.tensor import Tensor
from luminal.memory.as_tensor import outside, recorder
from luminal.memory.data import array_of
from luminal.nn.packed_sequence import Lengths, PackedSequence, masked, tensor_of

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs padded sequences, (steps, batch, ...), or (batch, steps, ...) with `batch_first`.

    `lengths` (batch,) are a list, an array or a Tensor. Of numbers, and of Tensors on the default
    graph, everything is as in PyTorch. Where they are known in a run only, as arguments of a
    function under `lm.jit` are, the packed sequence has no fields, and it stays as long as the
    padded one; a length of 0 is one then, and `enforce_sorted` is not checked. Lengths above the
    steps are refused in the run if they are an argument, and count as all steps if computed.
    Raises InputError for lengths outside of 1..steps, or that grow with `enforce_sorted`, and
    ShapeError. As torch.nn.utils.rnn.pack_padded_sequence.
    """
    x = tensor_of("pack_padded_sequence", input)
    if x.ndim < 2:
        raise ShapeError(
            f"pack_padded_sequence: {describe(x)}; it takes padded sequences, (steps, batch, ...)"
        )
    x = x.transpose(0, 1) if batch_first else x
    held = Lengths.of(lengths, x, enforce_sorted)
    if held.counts is not None:
        x = x.narrow(0, 0, int(held.counts.max()))
    # Padding may be NaN: a product's gradient multiplies it by 0, which is NaN again.
    return PackedSequence.of_padded(masked(x, held.reach(x.extents[0]), 0), held)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: Extent | None = None,
) -> tuple[Tensor, Tensor]:
    """The padded sequences (steps, batch, ...), in the order in which they were packed, and their
    lengths (batch,), as torch.nn.utils.rnn.pad_packed_sequence.

    Steps are those of the longest, or of what was packed where lengths are known in a run only;
    `total_length` may ask for more. Raises InputError where it asks for fewer.
    """
    x = sequence.padded
    if total_length is not None:
        steps = x.graph.extent(total_length)
        if steps.is_const and x.extents[0].is_const and steps.value < x.extents[0].value:
            raise InputError(
                f"pad_packed_sequence: total_length {steps} is less than the {x.extents[0]} steps "
                "of the sequences"
            )
        rest: list[tuple[Extent, Extent]] = [(0, 0)] * (x.ndim - 1)
        x = pad(x, [(0, steps - x.extents[0]), *rest])
    x = masked(x, sequence.lengths.reach(x.extents[0]), padding_value)
    return (x.transpose(0, 1) if batch_first else x), sequence.lengths.tensor


def pad_sequence(
    sequences: Iterable[Any],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences (length, ...) as one Tensor (longest, batch, ...), or (batch, longest, ...).

    Arrays, and Tensors of integers whose elements are at hand, are padded at once, so programs do
    not depend on the length of each. Raises InputError where there is none, and for sides but
    "right" and "left". As torch.nn.utils.rnn.pad_sequence.
    """
    if padding_side not in ("right", "left"):
        raise InputError(f"pad_sequence: padding_side {padding_side!r} is not 'right' or 'left'")
    listed = list(sequences)
    if not listed:
        raise InputError("pad_sequence: there is no sequence; give one at least")
    arrays = [_at_hand(x) for x in listed]
    tensors = [x for x in listed if is_tensor(x)]
    if all(array is not None for array in arrays):
        graph = tensors[0].graph if tensors else recorder.get() or outside()
        padded = _padded_arrays(arrays, padding_value, padding_side == "left")
        x = graph.tensor(padded, copy=False) if graph.is_eager else graph.constant(padded)
    else:
        x = _padded_tensors(
            [tensor_of("pad_sequence", x) for x in listed], padding_value, padding_side == "left"
        )
    return x if batch_first else x.transpose(0, 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Any]:
    """Each sequence (length, ...) of padded ones (longest, batch, ...), or (batch, longest, ...).

    Raises InputError where lengths are known in a run only, as shapes follow from them. As
    torch.nn.utils.rnn.unpad_sequence.
    """
    x = tensor_of("unpad_sequence", padded_sequences)
    x = x if batch_first else x.transpose(0, 1)
    counts = elements_of(x.graph.constant(lengths))
    if counts is None:
        raise InputError(
            f"unpad_sequence: the lengths {describe(lengths)} are known in a run only, and shapes "
            "follow from them; keep the padded Tensor, or give a list"
        )
    if counts.shape != (len(x),):
        raise ShapeError(
            f"unpad_sequence: {counts.size} lengths for {describe(x)}; give one for each of "
            f"{len(x)} sequences"
        )
    longest = x.extents[1].value
    return [row.narrow(0, 0, min(n, longest)) for row, n in zip(x, counts.tolist(), strict=True)]


def pack_sequence(sequences: Iterable[Any], enforce_sorted: bool = True) -> PackedSequence:
    """Packs sequences (length, ...), as torch.nn.utils.rnn.pack_sequence: `pad_sequence`, then
    `pack_padded_sequence`.
    """
    listed = list(sequences)
    padded = pad_sequence(listed)
    return pack_padded_sequence(padded, [len(x) for x in listed], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Any]:
    """Each sequence (length, ...) of packed ones, as torch.nn.utils.rnn.unpack_sequence."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences, batch_first=True), True)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The place of each number in a permutation (n,), as torch.nn.utils.rnn.invert_permutation."""
    return None if permutation is None else permutation.argsort()


def _at_hand(x: Any) -> Any:
    """The elements of an array, and of a Tensor of integers of the default graph that nothing has
    to compute; None for others.
    """
    x = value_of(x)
    if not is_tensor(x):
        return array_of(x, None, "pad_sequence")
    # A float may have a derivative, so it stays what is recorded of it.
    return x.graph.known(x.value) if x.graph.is_eager and not x.dtype.is_float else None


def _padded_arrays(arrays: list[Any], value: float, left: bool) -> Any:
    first = arrays[0]
    longest = max(map(len, arrays))
    padded = np.full((len(arrays), longest, *first.shape[1:]), value, first.dtype)
    for k, array in enumerate(arrays):
        if array.shape[1:] != first.shape[1:]:
            raise ShapeError(
                f"pad_sequence: the {k}th is {array.shape} and the first {first.shape}; they "
                "differ in their first dim only"
            )
        padded[k, longest - len(array) if left else 0 :][: len(array)] = array
    return padded


def _padded_tensors(tensors: list[Tensor], value: float, left: bool) -> Tensor:
    longest = max(map(len, tensors))
    padded = []
    for x in tensors:
        amount = longest - len(x)
        amounts = [(amount, 0) if left else (0, amount), *[(0, 0)] * (x.ndim - 1)]
        padded.append(pad(x, amounts, value=value))
    return stack(padded, 0)
