"""What recurrent layers of a decoder keep of the positions before, and how they step through x."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from luminal.base.dtypes import bool_, float32, promote
from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.frontend.creation import position
from luminal.frontend.handle import Extent
from luminal.frontend.pointwise.binary import where
from luminal.frontend.scan import scan
from luminal.frontend.tensor import Tensor
from luminal.memory.state import State
from luminal.nn.cache import Positions
from luminal.nn.module import Module
from luminal.shape.expression import const

Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class RecurrentCache:
    """States of one text, or with a leading dim of a batch of them. A text starts with zeros."""

    states: tuple[State, ...]

    @classmethod
    def make(
        cls, shapes: Shapes, dtype: Any, name: str, batch: int | None = None
    ) -> RecurrentCache:
        """One State for each shape; without `batch` of one text."""
        rows = () if batch is None else (batch,)
        return cls(
            tuple(
                State((*rows, *shape), dtype, name=f"{name}.{number}")
                for number, shape in enumerate(shapes)
            )
        )

    def within(self, reach: Extent) -> RecurrentCache:
        """The cache itself, for nothing of single positions is kept; see `KVCache`."""
        return self

    def before(self, x: Tensor, positions: Positions) -> list[Tensor]:
        """The States' values before x (..., s, features), in its dtype: 0 at a text's start.

        Raises InputError for texts of different lengths, read together: padding would be kept.
        """
        graph, rows = x.graph, [slice(n) for n in x.extents[:-2]]
        if isinstance(positions, Tensor):
            if positions.extents[-1] != const(1):
                raise InputError(
                    f"recurrent layers: positions {positions.extents} of texts with lengths of "
                    "their own; read each text alone, then step them together, one token a run"
                )
            later = positions[..., 0] > 0
        else:
            later = position(graph, graph.extent(positions) > 0, (), bool_)
        values = []
        for state in self.states:
            value = (
                graph.read(state)[*rows].cast(x.dtype) if rows else graph.read(state).cast(x.dtype)
            )
            of_row = later.reshape(*later.extents, *[1] * (value.ndim - later.ndim))
            # A text starts at position 0 whatever the State held: no run has to clear it first.
            values.append(where(of_row, value, 0))
        return values

    def keep(self, values: Sequence[Tensor]) -> None:
        """The States hold the values after the run, the first rows where there are fewer."""
        for state, value in zip(self.states, values, strict=True):
            graph, kept = value.graph, value.cast(state.dtype)
            if value.extents[:1] != graph.extents(state.shape[:1]):
                # Rows of a batch that is not full keep what they had.
                kept = graph.read(state).slice_scatter(kept, 0, 0)
            graph.assign(state, kept)


class RecurrentLayer(Module):
    """What takes the place of a decoder's attention and keeps values of the positions before; of
    one text those of its `shapes`.
    """

    shapes: Shapes

    def before(self, cache: RecurrentCache | None, x: Tensor, positions: Positions) -> list[Tensor]:
        """What the cache kept, or zeros for each row of x (..., s, features)."""
        if cache is not None:
            return cache.before(x, positions)
        return [x.graph.zeros((*x.extents[:-2], *shape), x.dtype) for shape in self.shapes]

    def make_cache(
        self, max_len: int, dtype: Any = float32, name: str = "cache", batch: int | None = None
    ) -> RecurrentCache:
        """An empty cache, of one text or a batch of them; it holds a text of any length."""
        # A recurrence adds to its state at every position: in 16 bits the roundings would add up.
        return RecurrentCache.make(self.shapes, promote(dtype, float32), name, batch)


def stepped(
    step: Callable[[Any, Any], tuple[Any, Tensor]], carry: Any, xs: Sequence[Tensor], axis: int
) -> tuple[Any, Tensor]:
    """`luminal.scan` along `axis` of every x; a single step is taken without a loop."""
    # A step of generation: its kernels fuse with what is around them, as no Loop lies between.
    if xs[0].extents[axis] == const(1):
        carry, y = step(carry, tuple(x.squeeze(axis) for x in xs))
        return carry, y.unsqueeze(axis)
    carry, ys = scan(step, carry, tuple(x.movedim(axis, 0) for x in xs))
    return carry, ys.movedim(0, axis)
