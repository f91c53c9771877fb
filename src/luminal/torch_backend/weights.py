"""Parameters in step with tensors, so that what programs derive from them is never stale.

A tensor's version moves with every write that PyTorch counts. Writes through `.data` it does not:
so some elements of each tensor, spread over all of it, are compared at each call. A write of single
elements through `.data` may go unseen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from luminal.memory.arrays import Array
from luminal.memory.parameter import Parameter
from luminal.torch_backend.borrowed_state import array_of
from luminal.torch_backend.plans import InputPlan

SAMPLES = 16  # elements of a tensor that are compared


# Without gradients parameters are weights, whose panels are worth making. In a step that trains
# they change each time, and are inputs. Hashing all elements at each call would cost what it saves;
# 17 of each tensor, spread over it, see whatever changes a whole tensor.
class Weights:
    """`seen`: versions and addresses of the tensors when the Parameters were set."""

    __slots__ = ("_parameters", "_sample", "_samples", "_tensors", "seen")

    def __init__(self, plans: Sequence[InputPlan]) -> None:
        pairs = [(plan.order or (), plan.parameter) for plan in plans]
        self._parameters: list[tuple[tuple[int, ...], Parameter]] = pairs  # type: ignore[assignment]
        self._tensors: list[torch.Tensor | None] = [None] * len(plans)
        self._samples: list[Array] = [np.zeros(0, np.uint8)] * len(plans)
        self._sample = b""
        self.seen: tuple[int, ...] | None = None

    def differ(self) -> bool:
        """Are some elements other ones than when they were set?"""
        return np.concatenate(self._samples).tobytes() != self._sample

    def set(self, tensors: Sequence[torch.Tensor], seen: tuple[int, ...] | None) -> None:
        """Sets those that have moved; all of them if what was seen says of none that it has."""
        every = seen is None or self.seen is None or seen == self.seen
        for k, (x, (order, parameter)) in enumerate(zip(tensors, self._parameters, strict=True)):
            place = slice(2 * k, 2 * k + 2)
            if every or seen[place] != self.seen[place]:  # type: ignore[index]
                laid = x.permute(order).contiguous()
                array = array_of(laid)
                array.flags.writeable = False  # so it is kept, not copied
                parameter.set(array)
                self._tensors[k], self._samples[k] = laid, _sample(array)
        self._sample = np.concatenate(self._samples).tobytes()
        self.seen = seen


def _sample(array: Array) -> Array:
    """A view of some elements, as bits."""
    flat = array.reshape(-1)
    step = max(1, flat.size // SAMPLES)
    return flat[::step][: SAMPLES + 1].view(f"u{array.itemsize}")
