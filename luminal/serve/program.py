"""The program of a step: rows of one token and a chunk of a prompt, for any number of either.

Its dims are symbolic, so it is compiled once, and computes a row with the same bits whatever runs
beside it. Sizes are rounded up to powers of 2: bindings of a few sizes are kept ready. What is
padded belongs to no block: it is kept nowhere, and nobody sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from luminal import dtypes
from luminal.frontend.handle import along
from luminal.frontend.indexing import gather_at
from luminal.frontend.movement import expand
from luminal.frontend.scatter import written
from luminal.models.decoder import Decoder
from luminal.nn.paged import PagedCache, Places, Segment
from luminal.serve.blocks import BlockPool
from luminal.serve.scheduler import Row, Step
from luminal.session import Graph, compile

Array = np.ndarray[Any, Any]


def rounded(count: int, least: int = 1) -> int:
    """The next power of 2 from `least` on; 0 stays 0."""
    return 0 if count == 0 else max(least, 1 << (count - 1).bit_length())


class StepInputs(NamedTuple):
    """What a step's program takes; tokens of the rows come first, then those of the chunk.

    ids, positions, blocks and offsets (tokens,); tables (rows, width) and table (1, length): the
    blocks of the rows' texts and of the chunk's; chosen (rows + chunk's 1 or 0,): the tokens whose
    logits choose. All int32.
    """

    ids: Array
    positions: Array
    blocks: Array
    offsets: Array
    tables: Array
    table: Array
    chosen: Array


LEAST_CHUNK = 16  # a shorter chunk takes about as long


def inputs_of(step: Step, pool: BlockPool) -> StepInputs:
    """The arrays of a step."""
    decodes, chunk = step.decodes, step.chunk
    rows = rounded(len(decodes))
    length = 0 if chunk is None else rounded(chunk.count, LEAST_CHUNK)
    ids, positions, blocks, offsets = (np.zeros(rows + length, np.int32) for _ in range(4))
    blocks[:] = pool.count
    positions[: len(decodes)] = starts = np.array([row.start for row in decodes], np.int32)
    ids[: len(decodes)] = [row.text.tokens[row.start] for row in decodes]
    offsets[: len(decodes)] = starts % pool.size
    tables = _tables(decodes, rows, pool)
    blocks[: len(decodes)] = tables[range(len(decodes)), starts // pool.size]
    table = _tables([] if chunk is None else [chunk], 1, pool)
    chosen = np.arange(rows, dtype=np.int32)
    if chunk is not None:
        own = slice(rows, rows + chunk.count)
        end = chunk.start + chunk.count
        places = np.arange(chunk.start, end, dtype=np.int32)
        ids[own] = chunk.text.tokens[chunk.start : end]
        positions[own], offsets[own] = places, places % pool.size
        blocks[own] = table[0, places // pool.size]
        chosen = np.append(chosen, np.int32(rows + chunk.count - 1))
    return StepInputs(ids, positions, blocks, offsets, tables, table, chosen)


def _tables(rows: Sequence[Row], count: int, pool: BlockPool) -> Array:
    """`count` tables of the blocks that rows reach, of a common width."""
    reached = [pool.needed(row.start + row.count) for row in rows]
    tables = np.full((count, rounded(max(reached, default=1))), pool.count, np.int32)
    for table, row, number in zip(tables, rows, reached, strict=False):
        table[:number] = row.text.blocks[:number]
    return tables


class StepProgram:
    """A model with a cache of the pool's blocks: runs steps, and gives logits of each row.

    `context`: the most tokens of a text.
    """

    def __init__(
        self,
        model: Decoder,
        pool: BlockPool,
        max_rows: int,
        chunk: int,
        context: int,
        backend: str = "cpu",
    ) -> None:
        self.model, self.pool, self.context = model, pool, context
        config = model.config
        shape = pool.count, config.num_key_value_heads, pool.size, config.head_dim
        self.states = [
            PagedCache.make_states(*shape, name=f"layers.{number}.cache")
            for number in range(config.num_hidden_layers)
        ]
        self._step = compile(self._record(max_rows, chunk), backend=backend)
        self._copy = compile(self._record_copy(), backend=backend)

    def _record(self, max_rows: int, most: int) -> Graph:
        graph = Graph("step")
        rows = graph.dim("rows", 0, rounded(max_rows))
        chunk = graph.dim("chunk", 0, rounded(most, LEAST_CHUNK))
        longest = rounded(self.pool.needed(self.context))
        width, length = (graph.dim(name, 1, longest) for name in ("width", "length"))
        prompts = graph.dim("prompts", 0, 1)
        tokens = (rows + chunk,)
        ids, positions, blocks, offsets = (
            graph.tensor(tokens, dtype=dtypes.int32, name=name)
            for name in ("ids", "positions", "blocks", "offsets")
        )
        tables = graph.tensor((rows, width), dtype=dtypes.int32, name="tables")
        table = graph.tensor((1, length), dtype=dtypes.int32, name="table")
        chosen = graph.tensor((rows + prompts,), dtype=dtypes.int32, name="chosen")
        places = Places(blocks, offsets, (Segment(tables, 1), Segment(table, chunk)))
        caches = [PagedCache(*states, places) for states in self.states]
        hidden = self.model.model(ids, caches, positions)
        self.model.logits(hidden[chosen]).output("logits")
        return graph

    def _record_copy(self) -> Graph:
        """Blocks at `sources` to those at `targets`: all are read before any is written."""
        graph = Graph("copy")
        count = graph.dim("count", 1)
        sources, targets = (
            graph.tensor((count,), dtype=dtypes.int32, name=name) for name in ("sources", "targets")
        )
        for state in (each for pair in self.states for each in pair):
            blocks = graph.read(state)
            shape = count, *blocks.extents[1:]
            inside = [along(k, n) for k, n in enumerate(shape) if k]
            source, target = (
                expand(each.unflatten(0, (count, 1, 1, 1)), shape) for each in (sources, targets)
            )
            copied = gather_at(blocks, shape, (source, *inside))
            graph.assign(state, written(blocks, (target, *inside), copied, "set"))
        return graph

    def run(self, step: Step) -> Array:
        """Logits (rows, vocab_size) of the last token of each of the step's rows."""
        if step.copies:
            sources, targets = np.array(step.copies, np.int32).T
            self._copy({"sources": sources.copy(), "targets": targets.copy()})
        inputs = inputs_of(step, self.pool)
        rows = len(inputs.tables)
        dims = {"chunk": len(inputs.ids) - rows, "prompts": len(inputs.chosen) - rows}
        found = self._step(inputs._asdict(), dims=dims)["logits"]
        decodes = found[: len(step.decodes)]
        return decodes if step.chunk is None else np.concatenate((decodes, found[-1:]))
