"""Cases in the making: operands in drawn layouts, and the fields of operations' texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from bench.fuzz.case import TYPES, UPSTREAM, Case, Input, flat

Shape = tuple[int, ...]
LAYOUTS = {
    "plain": 8, "permuted": 3, "channels last": 3, "sliced": 2, "strided": 2, "broadcast": 2,
    "offset": 1,
}  # fmt: skip
RESULT_ELEMENTS = 10_000_000  # of what gathers and products hand out
PRODUCT_FLOPS = 5e8  # of a product or a convolution: some milliseconds


@dataclass(slots=True)
class Draft:
    """The inputs so far, those that gradients may be taken of, and the random numbers."""

    rng: np.random.Generator
    inputs: list[Input] = field(default_factory=list)
    differentiable: list[str] = field(default_factory=list)

    def chosen(self, weights: dict[str, float] | dict[str, int]) -> str:
        """One of the keys, by weight."""
        shares = np.array(list(weights.values()), np.float64)
        return str(self.rng.choice(list(weights), p=shares / shares.sum()))

    def log_uniform(self, low: float, high: float) -> int:
        """A whole number between these, as often of each size."""
        return int(np.exp(self.rng.uniform(math.log(low), math.log(max(low, high) + 1))))

    def add(
        self, type_: str, shape: Iterable[int], *, positive: bool = False, below: int = 0,
        offset: bool = False, constant: bool = False,
    ) -> str:  # fmt: skip
        """The name of a new input."""
        name = "xyzuvwabcdefghijklmn"[len(self.inputs)]
        self.inputs.append(Input(name, type_, tuple(shape), positive, below, offset))
        if TYPES[type_].torch.is_floating_point and not (constant or positive):
            self.differentiable.append(name)
        return name

    def laid_out(self, layout: str, type_: str, shape: Shape, *, positive: bool = False) -> str:
        """A new input, seen so that it has `shape`, as an expression."""
        add = partial(self.add, type_, positive=positive)
        if layout == "offset":
            return add(shape, offset=True)
        view = _VIEWS.get(layout)
        return view(self.rng, shape, add) if view and shape else add(shape)

    def meta(self, expression: str, types: dict[str, str] | None = None) -> list[torch.Tensor]:
        """Shapes and types of what the expression gives, by PyTorch without data."""
        return self._made(expression)[1]

    def is_view(self, expression: str) -> bool:
        """Whether a result is an input's own memory: PyTorch then computes nothing."""
        leaves, results = self._made(expression)
        held = {leaf.untyped_storage()._cdata for leaf in leaves}
        return any(each.untyped_storage()._cdata in held for each in results)

    def _made(self, expression: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The inputs without data, and what the expression makes of them."""
        case = Case(tuple(self.inputs), expression)
        leaves = [
            torch.empty(each.shape, dtype=TYPES[each.type].torch, device="meta")
            for each in self.inputs
            if each.name != UPSTREAM
        ]
        return leaves, list(flat(case.function(torch)(*leaves)))


View = Callable[[np.random.Generator, Shape, Callable[[Shape], str]], str]


def _permuted(rng: np.random.Generator, shape: Shape, add: Callable[[Shape], str]) -> str:
    order = [int(axis) for axis in rng.permutation(len(shape))]
    held = [0] * len(shape)
    for place, axis in enumerate(order):
        held[axis] = shape[place]
    return f"{add(tuple(held))}.permute({', '.join(map(str, order))})"


def _channels_last(rng: np.random.Generator, shape: Shape, add: Callable[[Shape], str]) -> str:
    """Channels are axis 1 of 3 or more; of two axes, the rows are columns in memory."""
    last = len(shape) - 1
    if last < 1:
        return add(shape)
    order = ", ".join(map(str, (0, last, *range(1, last)))) if last > 1 else "1, 0"
    held = (shape[0], *shape[2:], shape[1]) if last > 1 else shape[::-1]
    return f"{add(held)}.permute({order})"


def _sliced(rng: np.random.Generator, shape: Shape, add: Callable[[Shape], str]) -> str:
    cut = set(rng.choice(len(shape), size=min(len(shape), 2)).tolist())
    begins = [int(rng.integers(0, 4)) if axis in cut else 0 for axis in range(len(shape))]
    more = [int(rng.integers(0, 4)) if axis in cut else 0 for axis in range(len(shape))]
    held = tuple(sum(each) for each in zip(shape, begins, more, strict=True))
    parts = (
        f"{begin}:{begin + extent}" if axis in cut else ":"
        for axis, (begin, extent) in enumerate(zip(begins, shape, strict=True))
    )
    return f"{add(held)}[{', '.join(parts)}]"


def _strided(rng: np.random.Generator, shape: Shape, add: Callable[[Shape], str]) -> str:
    axis, step = int(rng.integers(len(shape))), int(rng.integers(2, 4))
    held = tuple(extent * (step if place == axis else 1) for place, extent in enumerate(shape))
    parts = [":"] * axis + [f"{int(rng.integers(step))}::{step}"]
    return f"{add(held)}[{', '.join(parts)}]"


def _broadcast(rng: np.random.Generator, shape: Shape, add: Callable[[Shape], str]) -> str:
    along = int(rng.integers(len(shape)))
    held = tuple(1 if place == along else extent for place, extent in enumerate(shape))
    return f"{add(held)}.expand({', '.join(map(str, shape))})"


_VIEWS: dict[str, View] = {
    "permuted": _permuted, "channels last": _channels_last, "sliced": _sliced,
    "strided": _strided, "broadcast": _broadcast,
}  # fmt: skip


def drawn_shape(draft: Draft, rank: int, elements: int) -> Shape:
    """Extents with about this product: half of the time the round ones that networks have."""
    rng = draft.rng
    shares = rng.dirichlet(np.full(rank, 2.0)) * math.log(elements)
    extents = [max(1, round(math.exp(share))) for share in shares]
    if rng.random() < 0.5:
        extents = [_rounded(extent) for extent in extents]
    return tuple(extents)


def _rounded(extent: int) -> int:
    step = 1 if extent < 8 else 2 ** (extent.bit_length() - 3)
    return extent // step * step
