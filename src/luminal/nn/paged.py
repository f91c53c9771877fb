"""A paged cache: keys and values of many texts in blocks, which each text's table lists in order.

Kwon et al., arXiv 2309.06180. One run takes tokens of many texts side by side, as one row of ids:
segments of texts that have equally many of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from luminal.base.records import dataclass
from luminal.frontend.handle import Extent, along
from luminal.frontend.movement.indexing import gather_at
from luminal.frontend.movement.scatter import written
from luminal.frontend.movement.views import concat, expand
from luminal.frontend.tensor import Tensor
from luminal.memory.state import State
from luminal.nn.cache import KVCache, Positions

if TYPE_CHECKING:
    from luminal.nn.attention import CausalAttention


@dataclass(frozen=True, slots=True)
class Segment:
    """`length` tokens of each of some texts, those of a text side by side.

    `tables` (texts, blocks), int32: the blocks of each text, as many as the longest has. A number
    beyond the cache's blocks stands for none: keys and values there are 0.
    """

    tables: Tensor
    length: Extent


@dataclass(frozen=True, slots=True)
class Places:
    """Where the tokens of a run lie, for all layers.

    `blocks` and `offsets` (tokens,), int32: what is computed of a token is kept at this place of
    this block, or nowhere where there is no such block.
    """

    blocks: Tensor
    offsets: Tensor
    segments: Sequence[Segment]


@dataclass(frozen=True, slots=True)
class PagedCache:
    """One layer's keys and values, (blocks, kv_heads, size, head_dim) each. See `nn.Cache`.

    `spans`: see `spanning`.
    """

    keys: State
    values: State
    places: Places
    spans: Tensor | None = None

    @classmethod
    def of(cls, cache: KVCache, places: Places) -> PagedCache:
        """The States of a cache for a batch, each row of which is taken for a block."""
        return cls(cache.keys, cache.values, places)

    def spanning(self, spans: Tensor) -> PagedCache:
        """A cache of these States, whose queries also see the keys of their spans (2, tokens) (see
        `CausalAttention.attend`); those of segments of one token have none.
        """
        return replace(self, spans=spans)

    def attend(
        self, attention: CausalAttention, q: Tensor, k: Tensor, v: Tensor, positions: Positions
    ) -> Tensor:
        """q (heads, tokens, head_dim) to the same shape; `positions` (tokens,) are each token's."""
        for state, new in ((self.keys, k), (self.values, v)):
            self._keep(state, new)
        return self.attend_kept(attention, q, positions)

    def attend_kept(self, attention: CausalAttention, q: Tensor, positions: Positions) -> Tensor:
        """Attends what is kept in the pages; see `Cache`."""
        assert isinstance(positions, Tensor)
        graph, attended, start = q.graph, [], q.graph.extent(0)
        for segment in self.places.segments:
            texts = segment.tables.extents[0], graph.extent(segment.length)
            end = start + texts[0] * texts[1]
            spans = None
            if self.spans is not None and segment.length != 1:
                spans = self.spans[:, start:end].unflatten(1, texts).transpose(0, 1)
            values = attention.attend(
                q[:, start:end].unflatten(1, texts).transpose(0, 1),
                _read(graph.latest(self.keys), segment.tables),
                _read(graph.latest(self.values), segment.tables),
                positions[start:end].unflatten(0, texts),
                spans,
            )
            attended.append(values.transpose(0, 1).flatten(1, 2))
            start = end
        return concat(attended, 1)

    def _keep(self, state: State, new: Tensor) -> None:
        """The State has what is new in its places after the run."""
        graph, shape = new.graph, new.extents
        block, offset = (
            expand(places.unsqueeze(0).unsqueeze(-1), shape)
            for places in (self.places.blocks, self.places.offsets)
        )
        entries = block, along(0, shape[0]), offset, along(2, shape[2])
        graph.assign(state, written(graph.read(state), entries, new.cast(state.dtype), "set"))


def _read(blocks: Tensor, tables: Tensor) -> Tensor:
    """The blocks of each text one after the other: (texts, kv_heads, positions, head_dim)."""
    _, heads, size, features = blocks.extents
    texts, count = tables.extents
    shape = texts, heads, count * size, features
    numbers = expand(tables.unsqueeze(-1), (texts, count, size)).flatten(1, 2)
    block = expand(numbers.unsqueeze(1).unsqueeze(-1), shape)
    # Block and offset are Expressions of the position, so a page table costs one Gather of block
    # numbers.
    offset = along(2, count * size) % size
    return gather_at(blocks, shape, (block, along(1, heads), offset, along(3, features)))
