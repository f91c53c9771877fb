"""Keys and values that States hold between runs, of one text or of a batch of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from luminal.dtypes import float32
from luminal.frontend.handle import Extent, along
from luminal.frontend.movement import expand
from luminal.frontend.scatter import written
from luminal.frontend.tensor import Tensor
from luminal.hlir.state import State

if TYPE_CHECKING:
    from luminal.nn.attention import CausalAttention

Positions = Extent | Tensor
"""That of the first id, which the others follow, or a Tensor of the ids' shape: that of each."""


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


@dataclass(frozen=True, slots=True)
class KVCache:
    """One layer's keys and values of all positions so far, each (kv_heads, max_len, head_dim).

    (batch, kv_heads, max_len, head_dim) for texts of a batch: row i of ids belongs to row i here,
    and there may be fewer rows. `reach`: where positions are a Tensor, only the keys before it are
    attended, all by default.
    """

    keys: State
    values: State
    reach: Extent | None = None

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
        """The same States, of which only positions before `reach` are attended."""
        return replace(self, reach=reach)

    def attend(
        self, attention: CausalAttention, q: Tensor, k: Tensor, v: Tensor, positions: Positions
    ) -> Tensor:
        """See `Cache`. Positions from max_len on are refused, or if computed, not kept."""
        return attention.attend(q, *self.keep(k, v, positions), positions)

    def keep(self, k: Tensor, v: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        """All keys and values that may be attended; the States hold them after the run."""
        return self._kept(self.keys, k, positions), self._kept(self.values, v, positions)

    def _kept(self, state: State, new: Tensor, positions: Positions) -> Tensor:
        """Of keys or values."""
        graph, stored = new.graph, new.cast(state.dtype)
        entries: list[Any] = [along(k, n) for k, n in enumerate(new.extents)]
        if isinstance(positions, Tensor):
            entries[-2] = expand(positions.unsqueeze(-2).unsqueeze(-1), new.extents)
            end = graph.extent(state.shape[-2] if self.reach is None else self.reach)
        else:
            first = graph.extent(positions)
            end = first + new.extents[-2]
            graph.require(end <= state.shape[-2], "the end of a cache")
            entries[-2] = first + entries[-2]
        filled = written(graph.read(state), entries, stored, "set")
        graph.assign(state, filled)
        rows = [slice(n) for n in new.extents[:-3]]
        return filled[*rows, :, :end].cast(new.dtype)
