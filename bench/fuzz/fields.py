"""What the fields of an operation's text stand for: further inputs and numbers that fit."""

from __future__ import annotations

import math
from collections.abc import Callable

from bench.fuzz.draft import LAYOUTS, PRODUCT_FLOPS, RESULT_ELEMENTS, Draft, Shape


class Fields(dict[str, str]):
    """The fields of one operation, drawn where the text first has them.

    `operand` is the expression of `{x}`, of `type` and `shape`.
    """

    def __init__(self, draft: Draft, operand: str, type_: str, shape: Shape) -> None:
        super().__init__(x=operand)
        self.draft, self.rng, self.type, self.shape = draft, draft.rng, type_, shape
        self.along = int(self.rng.integers(max(1, len(shape))))

    def __missing__(self, name: str) -> str:
        make: Callable[[], str] = getattr(self, f"_{name}")
        self[name] = made = make()
        return made

    @property
    def _extent(self) -> int:
        return self.shape[self.along] if self.shape else 1

    # Inputs of the operand's shape

    def _y(self) -> str:
        layout = self.draft.chosen(LAYOUTS) if self.rng.random() < 0.25 else "plain"
        return self.draft.laid_out(layout, self.type, self.shape)

    _z = _y

    def _p(self) -> str:
        return self.draft.add(self.type, self.shape, positive=True)

    def _m(self) -> str:
        return self.draft.add("bool", self.shape)

    # Broadcast against it

    def _row(self) -> str:
        return self.draft.add(self.type, self.shape[-1:])

    def _column(self) -> str:
        keep = self.rng.random(len(self.shape)) < 0.5
        return self.draft.add(
            self.type,
            [extent if kept else 1 for extent, kept in zip(self.shape, keep, strict=True)],
        )

    def _scalar(self) -> str:
        return self.draft.add(self.type, ())

    def _channels(self) -> str:
        return self.draft.add(self.type, (self.shape[1],), constant=True)

    def _channels_p(self) -> str:
        return self.draft.add(self.type, (self.shape[1],), positive=True)

    # Numbers

    def _axis(self) -> str:
        return str(self.along)

    def _axis2(self) -> str:
        return str(int(self.rng.integers(len(self.shape))))

    def _axes(self) -> str:
        count = int(self.rng.integers(1, len(self.shape) + 1))
        chosen = sorted(self.rng.choice(len(self.shape), count, replace=False).tolist())
        return f"({', '.join(map(str, chosen))},)"

    def _width(self) -> str:
        return str(self.shape[-1])

    def _height(self) -> str:
        return str(self.shape[0])

    def _groups(self) -> str:
        divisors = [n for n in range(1, self.shape[1] + 1) if self.shape[1] % n == 0]
        return str(self.rng.choice(divisors))

    def _count(self) -> str:
        return str(self.draft.log_uniform(1, self._extent))

    def _few(self) -> str:
        return str(int(self.rng.integers(1, max(2, min(9, self.shape[-1] + 1)))))

    # Positions

    def _positions(self) -> str:
        rest = math.prod(self.shape) // max(1, self._extent)
        most = min(2 * self._extent, RESULT_ELEMENTS // max(1, rest))
        return self._below(self._extent, (self.draft.log_uniform(1, max(1, most)),))

    def _rows(self) -> str:
        self.along = 0
        return self._positions()

    def _places(self) -> str:
        return self._below(self._extent, self.shape)

    def _ids(self) -> str:
        self.along = 0
        return self._positions()

    def _labels(self) -> str:
        return self._below(self.shape[1], self.shape[:1])

    def _source(self) -> str:
        count = self.draft.inputs[-1].shape[0]
        return self.draft.add(
            self.type, (*self.shape[: self.along], count, *self.shape[self.along + 1 :])
        )

    def _below(self, limit: int, shape: Shape) -> str:
        return self.draft.add("i64", shape, below=limit)

    # Products

    def _vector(self) -> str:
        if len(self.shape) == 1 and self.rng.random() < 0.5:
            return self.draft.add(self.type, self.shape)
        return self.draft.add(self.type, self.shape[-1:])

    def _matrix(self) -> str:
        return self.draft.add(self.type, (self.shape[-1], self._columns()))

    def _weight(self) -> str:
        self.columns = self._columns()
        return self.draft.add(self.type, (self.columns, self.shape[-1]))

    def _bias(self) -> str:
        return self.draft.add(self.type, (self.columns,))

    def _stack(self) -> str:
        return self.draft.add(self.type, (*self.shape[:-2], self.shape[-1], self._columns()))

    def _columns(self) -> int:
        elements = math.prod(self.shape)
        rows = elements // self.shape[-1]
        most = min(PRODUCT_FLOPS / 2 / elements, RESULT_ELEMENTS / rows, 4e6 / self.shape[-1], 4096)
        return self.draft.log_uniform(1, max(1.0, most))

    # Windows

    def _spatial(self) -> Shape:
        return self.shape[2:]

    def _kernel(self, most: float) -> list[int]:
        """Extents of a window of at most so many elements: mostly small and square."""
        wide = self.rng.random() < 0.15
        extents = [self.draft.log_uniform(1, 39 if wide else 7) for _ in self._spatial()]
        if not wide and self.rng.random() < 0.7:
            extents = [extents[0]] * len(extents)
        extents = [min(k, n) for k, n in zip(extents, self._spatial(), strict=True)]
        while math.prod(extents) > most and max(extents) > 1:
            extents = [max(1, k // 2) for k in extents]
        return extents

    def _filters(self, groups: int, most_outputs: int) -> tuple[int, list[int]]:
        """Output channels and the extents of a window."""
        elements = math.prod(self.shape)
        budget = PRODUCT_FLOPS / 2 / elements * groups
        extents = self._kernel(budget)
        most = min(most_outputs, max(1.0, budget / math.prod(extents)))
        return self.draft.log_uniform(1, most), extents

    def _filter(self) -> str:
        outputs, self.extents = self._filters(1, 256)
        return self.draft.add(self.type, (outputs, self.shape[1], *self.extents))

    def _stepping(self) -> str:
        stride = int(self.rng.choice([1, 1, 1, 2, 2, 3]))
        padding = [k // 2 if self.rng.random() < 0.7 else 0 for k in self.extents]
        dilation = 2 if self.rng.random() < 0.1 else 1
        return f"stride={stride}, padding=({', '.join(map(str, padding))},), dilation={dilation}"

    def _back_filter(self) -> str:
        """The weight of a transposed convolution, and its stride and padding."""
        outputs, extents = self._filters(1, 128)
        stride = int(self.rng.choice([1, 2, 2, 3]))
        while math.prod(self.shape) / self.shape[1] * outputs * stride ** len(extents) > 5e6:
            stride, outputs = 1, max(1, outputs // 2)
            if outputs == 1:
                break
        name = self.draft.add(self.type, (self.shape[1], outputs, *extents))
        return f"{name}, stride={stride}, padding={min(k // 2 for k in extents)}"

    def _depthwise(self) -> str:
        self.extents = self._kernel(PRODUCT_FLOPS / 2 / math.prod(self.shape))
        return self.draft.add(self.type, (self.shape[1], 1, *self.extents))

    def _grouping(self) -> str:
        return f"{self._stepping()}, groups={self.shape[1]}"

    def _window(self) -> str:
        extents = [min(self.draft.log_uniform(1, 4), n) for n in self._spatial()]
        stride = [int(self.rng.integers(1, k + 1)) for k in extents]
        text = f"({', '.join(map(str, extents))},), ({', '.join(map(str, stride))},)"
        return f"{text}, {min(k // 2 for k in extents)}"
