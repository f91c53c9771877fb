"""The program of a step: rows of one token and chunks of prompts, for any number of either.

Its dims are symbolic, so it is compiled once for each way to choose tokens, and computes a row with
the same bits whatever runs beside it. Sizes are rounded up to powers of 2: bindings of a few sizes
are kept ready. What is padded belongs to no block: it is kept nowhere, and nobody sees it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from luminal.base import dtypes
from luminal.frontend.handle import along
from luminal.frontend.movement.indexing import gather_at
from luminal.frontend.movement.scatter import written
from luminal.frontend.movement.views import expand
from luminal.models.choice import choose, declared
from luminal.models.decoder import Decoder
from luminal.models.sampling import FEATURES, Draw, Sampling, arrays
from luminal.nn.paged import PagedCache, Places, Segment
from luminal.serve.blocks import BlockPool
from luminal.serve.scheduler import Row, Step
from luminal.session.graph import Graph, compile

Array = np.ndarray[Any, Any]


def rounded(count: int, least: int = 1) -> int:
    """The next power of 2 from `least` on; 0 stays 0."""
    return 0 if count == 0 else max(least, 1 << (count - 1).bit_length())


class StepInputs(NamedTuple):
    """What a step's program takes; tokens of the chunks come first, then those of the rows.

    ids, positions, blocks and offsets (prompts * chunk + rows,); heads (prompts, length) and tables
    (rows, width): the blocks of the chunks' texts and of the rows'; chosen (prompts + rows,): the
    tokens whose logits choose. All int32.
    """

    ids: Array
    positions: Array
    blocks: Array
    offsets: Array
    heads: Array
    tables: Array
    chosen: Array


LEAST_CHUNK = 16  # a shorter chunk takes about as long
LEAST_COLUMNS = 16  # so do fewer tokens that penalties adjust


def chunk_of(step: Step) -> int:
    """How many tokens each chunk of a step has with what is padded."""
    return rounded(max((row.count for row in step.chunks), default=0), LEAST_CHUNK)


def inputs_of(step: Step, pool: BlockPool) -> StepInputs:
    """The arrays of a step."""
    prompts, rows, chunk = rounded(len(step.chunks)), rounded(len(step.decodes)), chunk_of(step)
    ids, positions, blocks = (np.zeros(prompts * chunk + rows, np.int32) for _ in range(3))
    # One past the last block: writes there are dropped, so padding keeps nothing.
    blocks[:] = pool.count
    heads, tables = _tables(step.chunks, prompts, pool), _tables(step.decodes, rows, pool)
    for number, row in enumerate(step.chunks):
        span = slice(number * chunk, number * chunk + row.count)
        places = np.arange(row.start, row.start + row.count, dtype=np.int32)
        ids[span] = row.text.tokens[row.start : row.start + row.count]
        positions[span], blocks[span] = places, heads[number, places // pool.size]
    count = len(step.decodes)
    span = slice(prompts * chunk, prompts * chunk + count)
    ids[span] = [row.text.tokens[row.start] for row in step.decodes]
    positions[span] = [row.start for row in step.decodes]
    blocks[span] = tables[range(count), positions[span] // pool.size]
    last = [number * chunk + row.count - 1 for number, row in enumerate(step.chunks)]
    last += [0] * (prompts - len(step.chunks))
    chosen = np.array([*last, *range(prompts * chunk, len(ids))], np.int32)
    return StepInputs(ids, positions, blocks, positions % pool.size, heads, tables, chosen)


def _tables(rows: Sequence[Row], count: int, pool: BlockPool) -> Array:
    """`count` tables of the blocks that rows reach, of a common width."""
    reached = [pool.needed(row.start + row.count) for row in rows]
    tables = np.full((count, rounded(max(reached, default=1))), pool.count, np.int32)
    for table, row, number in zip(tables, rows, reached, strict=False):
        # Blocks beyond what a row reaches are left out, or a row's width, and with it its time,
        # would grow with what was reserved for it.
        table[:number] = row.text.blocks[:number]
    return tables


WAYS = (
    (),
    ("temperature",),
    ("temperature", "allowed"),
    ("temperature", "allowed", "top_logprobs"),
    FEATURES,
)
"""What programs can do beside the likeliest token, the fastest first."""


NOBODY = Draw(Sampling())


def choice_inputs(
    draws: Sequence[Draw], count: int, features: Sequence[str], vocab_size: int
) -> dict[str, Array]:
    """The arrays of `count` choices; those beyond the draws mean nothing."""
    if not features:
        return {}
    inputs = arrays([*draws, *[NOBODY] * (count - len(draws))], features, vocab_size)
    for name, filler in (("listed", -1), ("seen", 0), ("count", 0), ("added", 0)):
        if name in inputs:
            columns = inputs[name].shape[1]
            more = (0, 0), (0, rounded(columns, LEAST_COLUMNS) - columns)
            inputs[name] = np.pad(inputs[name], more, constant_values=filler)
    return inputs


class Choices(NamedTuple):
    """What a step chose, a row each: tokens (rows,), and where a row asked for log-probabilities
    logprobs (rows,), top_tokens and top_logprobs (rows, n) of the likeliest.
    """

    tokens: Array
    logprobs: Array | None = None
    top_tokens: Array | None = None
    top_logprobs: Array | None = None


# Dims for rows and chunks make one program of all steps. A batch of another size is then a binding,
# not a compile, and a row's bits do not depend on the rows beside it.
class StepProgram:
    """A model with a cache of the pool's blocks: runs steps, and chooses the next token of a row.

    `context`: the most tokens of a text.
    """

    def __init__(
        self,
        model: Decoder,
        pool: BlockPool,
        max_rows: int,
        chunk: int,
        context: int,
        backend: str | None = None,
    ) -> None:
        self.model, self.pool, self.context = model, pool, context
        self.vocab_size = model.config.vocab_size
        self.caches = model.make_caches(pool.size, batch=pool.count)  # a row of the batch, a block
        # All ways are compiled before the first request: a compile in the middle would hold up
        # every text.
        self._steps = {
            features: compile(self._record(max_rows, chunk, features), backend=backend)
            for features in WAYS
        }
        self._copy = compile(self._record_copy(), backend=backend)

    def _record(self, max_rows: int, most: int, features: Sequence[str]) -> Graph:
        graph = Graph("step")
        rows = graph.dim("rows", 0, rounded(max_rows))
        chunk = graph.dim("chunk", 0, rounded(most, LEAST_CHUNK))
        longest = rounded(self.pool.needed(self.context))
        width, length = (graph.dim(name, 1, longest) for name in ("width", "length"))
        prompts = graph.dim("prompts", 0, rounded(max_rows))
        tokens = (prompts * chunk + rows,)
        ids, positions, blocks, offsets = (
            graph.tensor(tokens, dtype=dtypes.int32, name=name)
            for name in ("ids", "positions", "blocks", "offsets")
        )
        tables = graph.tensor((rows, width), dtype=dtypes.int32, name="tables")
        heads = graph.tensor((prompts, length), dtype=dtypes.int32, name="heads")
        chosen = graph.tensor((prompts + rows,), dtype=dtypes.int32, name="chosen")
        places = Places(blocks, offsets, (Segment(heads, chunk), Segment(tables, 1)))
        caches = [PagedCache.of(cache, places) for cache in self.caches]
        hidden = self.model.model(ids, caches, positions)
        inputs = declared(graph, prompts + rows, features, self.vocab_size)
        choices = choose(self.model.logits(hidden[chosen]), features, inputs)
        for name, tensor in choices._asdict().items():
            if tensor is not None:
                tensor.output(name)
        return graph

    def _record_copy(self) -> Graph:
        """Blocks at `sources` to those at `targets`: all are read before any is written."""
        graph = Graph("copy")
        count = graph.dim("count", 1)
        sources, targets = (
            graph.tensor((count,), dtype=dtypes.int32, name=name) for name in ("sources", "targets")
        )
        states = (held for cache in self.caches for held in (cache.keys, cache.values))
        for state in dict.fromkeys(states):  # some layers share theirs
            blocks = graph.read(state)
            shape = count, *blocks.extents[1:]
            inside = [along(k, n) for k, n in enumerate(shape) if k]
            source, target = (
                expand(blocks.unflatten(0, (count, 1, 1, 1)), shape)
                for blocks in (sources, targets)
            )
            copied = gather_at(blocks, shape, (source, *inside))
            graph.assign(state, written(blocks, (target, *inside), copied, "set"))
        return graph

    def run(self, step: Step, draws: Sequence[Draw], needed: Collection[str]) -> Choices:
        """Runs a step; `draws`: how each of its rows chooses, `needed`: the features of all.

        Tokens of rows that are not the last of their text's mean nothing. With the feature
        "top_logprobs" all fields are given.
        """
        if step.copies:
            sources, targets = np.array(step.copies, np.int32).T
            self._copy({"sources": sources.copy(), "targets": targets.copy()})
        inputs = inputs_of(step, self.pool)
        # The first way that can do all that the rows need. A program for each set of features would
        # be many compiles, and a batch of mixed rows would still need the largest of them.
        features = next(way for way in WAYS if set(needed).issubset(way))
        chunks, prompts = len(step.chunks), len(inputs.heads)
        # Draws stand where the program has their rows: behind the chunks of this step come those
        # that round their number up.
        placed = [*draws[:chunks], *[NOBODY] * (prompts - chunks), *draws[chunks:]]
        choices = choice_inputs(placed, len(inputs.chosen), features, self.vocab_size)
        feeds = inputs._asdict() | choices
        results = self._steps[features](feeds, dims={"chunk": chunk_of(step)})
        rows = [*range(chunks), *range(prompts, prompts + len(step.decodes))]
        return Choices(**{name: array[rows] for name, array in results.items()})
