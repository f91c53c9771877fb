"""Keys and values that States hold between runs, of one text or of a batch of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from luminal.base.dtypes import float32
from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.frontend.handle import Extent, along
from luminal.frontend.movement.scatter import written
from luminal.frontend.movement.views import expand
from luminal.frontend.tensor import Tensor
from luminal.memory.state import State
from luminal.shape.expression import Expression

if TYPE_CHECKING:
    from luminal.nn.attention import CausalAttention

Positions = Extent | Tensor
"""The position of the first id, which the others follow, or a Tensor with that of each."""


class Cache(Protocol):
    """How a layer's keys and values are kept, and which of them queries attend."""

    def attend(
        self, attention: CausalAttention, q: Tensor, k: Tensor, v: Tensor, positions: Positions
    ) -> Tensor:
        """Keeps k and v (..., kv_heads, s, head_dim) at `positions`, and gives what q attends.

        q and the result are (..., heads, s, head_dim); `attention.attend` computes it from keys
        and values that lie at positions 0, 1, 2 ...
        """
        ...

    def attend_kept(self, attention: CausalAttention, q: Tensor, positions: Positions) -> Tensor:
        """What q attends of the keys and values that `attend` kept before in the same program."""
        ...


@dataclass(slots=True)
class Passing:
    """Keys and values of one program without caches, for layers that attend an earlier one's."""

    keys: Tensor | None = None
    values: Tensor | None = None
    spans: Tensor | None = None

    def spanning(self, spans: Tensor) -> Passing:
        """A record whose queries also see their spans (see `CausalAttention.attend`)."""
        return replace(self, spans=spans)

    def attend(
        self, attention: CausalAttention, q: Tensor, k: Tensor, v: Tensor, positions: Positions
    ) -> Tensor:
        """See `Cache`: k and v are all there are."""
        self.keys, self.values = k, v
        return attention.attend(q, k, v, spans=self.spans)

    def attend_kept(self, attention: CausalAttention, q: Tensor, positions: Positions) -> Tensor:
        """Attends what is kept, without keys and values of its own; see `Cache`."""
        if self.keys is None or self.values is None:
            raise InputError("cache: nothing was kept; the layer that keeps keys comes first")
        return attention.attend(q, self.keys, self.values, spans=self.spans)


@dataclass(frozen=True, slots=True)
class KVCache:
    """One layer's keys and values of all positions so far, each (kv_heads, max_len, head_dim).

    (batch, kv_heads, max_len, head_dim) for texts of a batch: row i of ids belongs to row i here,
    and there may be fewer rows. `reach`: where positions are a Tensor, only the keys before it are
    attended, all by default. `spans`: see `spanning`.
    """

    keys: State
    values: State
    reach: Extent | None = None
    spans: Tensor | None = None

    @classmethod
    def make(
        cls,
        kv_heads: int,
        max_len: int,
        head_dim: int,
        dtype: Any = float32,
        name: str = "cache",
        batch: int | None = None,
    ) -> KVCache:
        """An empty cache; without `batch` for one text."""
        rows = () if batch is None else (batch,)
        shape = (*rows, kv_heads, max_len, head_dim)
        return cls(State(shape, dtype, name=f"{name}.k"), State(shape, dtype, name=f"{name}.v"))

    def within(self, reach: Extent) -> KVCache:
        """A cache of these States, of which only positions before `reach` are attended."""
        return replace(self, reach=reach)

    def spanning(self, spans: Tensor) -> KVCache:
        """A cache of these States, whose queries also see the keys of their spans (see
        `CausalAttention.attend`).
        """
        return replace(self, spans=spans)

    def attend(
        self, attention: CausalAttention, q: Tensor, k: Tensor, v: Tensor, positions: Positions
    ) -> Tensor:
        """See `Cache`. Positions from max_len on are refused, or if computed, not kept."""
        return attention.attend(q, *self.keep(k, v, positions), positions, self.spans)

    def attend_kept(self, attention: CausalAttention, q: Tensor, positions: Positions) -> Tensor:
        """Attends what is kept, without keys and values of its own; see `Cache`."""
        return attention.attend(q, *self._kept(q, positions), positions, self.spans)

    def keep(self, k: Tensor, v: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        """All keys and values that may be attended; the States hold them after the run."""
        for state, new in ((self.keys, k), (self.values, v)):
            self._keep(state, new, positions)
        return self._kept(k, positions)

    def _kept(self, new: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        """The keys and values that queries as many as `new` may attend."""
        graph, rows = new.graph, [slice(n) for n in new.extents[:-3]]
        end = self._end(new, positions)
        keys, values = (
            # The latest value is the one that `_keep` has just assigned. It is cut before it is
            # read, so that a short text in a long cache costs what the text is long.
            graph.latest(state)[*rows, :, :end].cast(new.dtype)
            for state in (self.keys, self.values)
        )
        return keys, values

    def _end(self, new: Tensor, positions: Positions) -> Expression:
        """Only positions before it are attended."""
        graph = new.graph
        if self.keys.spec is not None and self.keys.spec[-2]:
            # Cut by positions: each rank attends its own, and what is empty is hidden by the mask.
            return graph.extent(self.keys.shape[-2])
        if isinstance(positions, Tensor):
            return graph.extent(self.keys.shape[-2] if self.reach is None else self.reach)
        return graph.extent(positions) + new.extents[-2]

    def _keep(self, state: State, new: Tensor, positions: Positions) -> None:
        """The State holds `new` at its positions after the run."""
        graph, stored = new.graph, new.cast(state.dtype)
        entries: list[Any] = [along(k, n) for k, n in enumerate(new.extents)]
        if isinstance(positions, Tensor):
            # Each row writes at a position of its own; one beyond the end is dropped.
            entries[-2] = expand(positions.unsqueeze(-2).unsqueeze(-1), new.extents)
        else:
            # A position that is an Expression is checked before the run; computed ones write
            # nowhere when they lie outside.
            end = graph.extent(positions) + new.extents[-2]
            graph.require(end <= state.shape[-2], "the end of a cache")
            entries[-2] = graph.extent(positions) + entries[-2]
        # A Scatter into the State, which programs update where it lies: nothing else of the cache
        # is touched.
        graph.assign(state, written(graph.read(state), entries, stored, "set"))
