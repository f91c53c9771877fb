"""The program of a step: rows of one token and pieces of prompts, for any number of either.

Its dims are symbolic, so it is compiled once for each way to choose tokens, and computes a row with
the same bits whatever runs beside it. Sizes are rounded up to powers of 2: bindings of a few sizes
are kept ready. What is padded belongs to no block: it is kept nowhere, and nobody sees it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import InputError
from luminal.frontend.handle import along
from luminal.frontend.movement.indexing import gather_at
from luminal.frontend.movement.scatter import written
from luminal.frontend.movement.views import expand
from luminal.models.choice import choose, declared
from luminal.models.decoder import Decoder
from luminal.models.sampling import FEATURES, Draw, Sampling, arrays
from luminal.models.seen import Seen
from luminal.nn.adapted import of_rows
from luminal.nn.cache import KVCache
from luminal.nn.paged import PagedCache, Places, Segment
from luminal.serve.blocks import BlockPool
from luminal.serve.ranks import ALONE, Ranks
from luminal.serve.scheduler import PIECE, Step, Text
from luminal.serve.seen_inputs import seen_inputs
from luminal.session.graph import Graph

Array = np.ndarray[Any, Any]


def rounded(count: int, least: int = 1) -> int:
    """The next power of 2 from `least` on; 0 stays 0."""
    return 0 if count == 0 else max(least, 1 << (count - 1).bit_length())


class StepInputs(NamedTuple):
    """What a step's program takes; tokens of the pieces come first, then those of the rows.

    ids, positions, blocks and offsets (PIECE * pieces + rows,); heads (pieces, length) and tables
    (rows, width): the blocks that each piece and row reaches; chosen (pieces + rows,): the tokens
    whose logits choose. All int32.
    """

    ids: Array
    positions: Array
    blocks: Array
    offsets: Array
    heads: Array
    tables: Array
    chosen: Array


LEAST_COLUMNS = 16  # fewer tokens that penalties adjust take about as long


def inputs_of(step: Step, pool: BlockPool) -> StepInputs:
    """The arrays of a step."""
    held = [(row.text, piece) for row in step.chunks for piece in row.pieces()]
    ones = [(row.text, range(row.start, row.start + 1)) for row in step.decodes]
    pieces, rows = rounded(len(held)), rounded(len(ones))
    start = pieces * PIECE
    ids, positions, blocks = (np.zeros(start + rows, np.int32) for _ in range(3))
    # One past the last block: writes there are dropped, so padding keeps nothing.
    blocks[:] = pool.count
    heads, tables = _tables(held, pieces, pool), _tables(ones, rows, pool)
    for number, (text, piece) in enumerate(held):
        span = slice(number * PIECE, number * PIECE + len(piece))
        ids[span] = text.tokens[piece.start : piece.stop]
        positions[span] = piece
        blocks[span] = heads[number, positions[span] // pool.size]
    span = slice(start, start + len(ones))
    ids[span] = [row.token for row in step.decodes]
    positions[span] = [row.start for row in step.decodes]
    blocks[span] = tables[range(len(ones)), positions[span] // pool.size]
    last = [number * PIECE + len(piece) - 1 for number, (_, piece) in enumerate(held)]
    last += [0] * (pieces - len(held))
    chosen = np.array([*last, *range(start, len(ids))], np.int32)
    return StepInputs(ids, positions, blocks, positions % pool.size, heads, tables, chosen)


def adapters_of(step: Step) -> Array:
    """The number of each token's adapter, in the order of StepInputs: (PIECE * pieces + rows,)."""
    pieces = [row.text.adapter for row in step.chunks for _ in row.pieces()]
    ones = [row.text.adapter for row in step.decodes]
    of_pieces, of_ones = (np.zeros(rounded(len(held)), np.int32) for held in (pieces, ones))
    of_pieces[: len(pieces)], of_ones[: len(ones)] = pieces, ones
    return np.concatenate((of_pieces.repeat(PIECE), of_ones))


def _tables(spans: Sequence[tuple[Text, range]], count: int, pool: BlockPool) -> Array:
    """`count` tables of the blocks that texts reach at these positions, of a common width."""
    reached = [pool.needed(text.reach(span.stop)) for text, span in spans]
    tables = np.full((count, rounded(max(reached, default=1))), pool.count, np.int32)
    for table, (text, _), number in zip(tables, spans, reached, strict=False):
        # Blocks beyond what is reached are left out, or a row's width, and with it its time, would
        # grow with what was reserved for it.
        table[:number] = text.blocks[:number]
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
    draws: Sequence[Draw], features: Sequence[str], vocab_size: int
) -> dict[str, Array]:
    """The arrays of choices."""
    inputs = arrays(draws, features, vocab_size)
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


def recorded(
    model: Decoder,
    caches: Sequence[KVCache],
    most_rows: int,
    most_pieces: int,
    longest: int,
    features: Sequence[str] = (),
    names: Sequence[str] = (),
) -> Graph:
    """A step of so many rows and pieces at most, of texts of `longest` blocks; each row of the
    caches' batch is a block. `names`: what images may add (see `Seen`).
    """
    graph = Graph("step")
    rows = graph.dim("rows", 0, rounded(most_rows))
    width, length = (graph.dim(name, 1, longest) for name in ("width", "length"))
    pieces = graph.dim("pieces", 0, rounded(most_pieces))
    tokens = (pieces * PIECE + rows,)
    ids, positions, blocks, offsets = (
        graph.tensor(tokens, dtype=dtypes.int32, name=name)
        for name in ("ids", "positions", "blocks", "offsets")
    )
    tables = graph.tensor((rows, width), dtype=dtypes.int32, name="tables")
    heads = graph.tensor((pieces, length), dtype=dtypes.int32, name="heads")
    chosen = graph.tensor((pieces + rows,), dtype=dtypes.int32, name="chosen")
    places = Places(blocks, offsets, (Segment(heads, PIECE), Segment(tables, 1)))
    paged = [PagedCache.of(cache, places) for cache in caches]
    most = rounded(most_pieces) * PIECE
    seen = Seen.declared(ids, names, model.config.hidden_size, most)
    with of_rows(model.adapters, graph, tokens[0]):
        hidden = model.model(ids, paged, positions, seen=seen)
    inputs = declared(graph, pieces + rows, features, model.config.vocab_size)
    choices = choose(model.logits(hidden[chosen]), features, inputs)
    for name, tensor in choices._asdict().items():
        if tensor is not None:
            tensor.output(name)
    return graph


# Dims for rows and pieces make one program of all steps. A batch of another size is then a binding,
# not a compile, and a row's bits do not depend on the rows beside it.
class StepProgram:
    """A model with a cache of the pool's blocks: runs steps, and chooses the next token of a row.

    `context`: the most tokens of a text. `dtype`: of the keys and values that are kept. `ranks`:
    who runs it, each with its own key-value heads. `names`: what images may add (see `Seen`).
    """

    def __init__(
        self,
        model: Decoder,
        pool: BlockPool,
        max_rows: int,
        pieces: int,
        context: int,
        backend: str | None = None,
        dtype: Any = dtypes.float32,
        ranks: Ranks = ALONE,
        names: Sequence[str] = (),
    ) -> None:
        self._names = names
        self._vectors = rounded(pieces) * PIECE, model.config.hidden_size
        self.model, self.pool, self.context = model, pool, context
        self.vocab_size = model.config.vocab_size
        # A row of the batch is a block.
        self.caches = model.make_caches(pool.size, dtype, batch=pool.count)
        states = [held for cache in self.caches for held in (cache.keys, cache.values)]
        self._states = list(dict.fromkeys(states))  # some layers share theirs
        ranks.cut_pages(self._states)
        self._place(backend)
        # All ways are compiled before the first request: a compile in the middle would hold up
        # every text.
        self._steps = {
            features: ranks.compile(self._record(max_rows, pieces, features), backend)
            for features in WAYS
        }
        self._copy = ranks.compile(self._record_copy(), backend)

    # A server that found in the middle of its work that there is no room would fail all texts.
    def _place(self, backend: str | None) -> None:
        """Puts the pages on the device. Raises InputError where it has no room for them."""
        if backend is None:
            return
        size = sum(state.numel() * state.dtype.size for state in self._states)
        try:
            for state in self._states:
                state.to(backend)
        except MemoryError as error:
            raise InputError(
                f"cache: keys and values of {self.pool.count * self.pool.size} tokens take {size} "
                f"bytes ({error}); give a smaller --cache, or --cache-dtype bfloat16"
            ) from None

    def _record(self, max_rows: int, pieces: int, features: Sequence[str]) -> Graph:
        longest = rounded(self.pool.needed(self.context))
        return recorded(self.model, self.caches, max_rows, pieces, longest, features, self._names)

    def _record_copy(self) -> Graph:
        """Blocks at `sources` to those at `targets`: all are read before any is written."""
        graph = Graph("copy")
        count = graph.dim("count", 1)
        sources, targets = (
            graph.tensor((count,), dtype=dtypes.int32, name=name) for name in ("sources", "targets")
        )
        for state in self._states:
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

    def copy(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copies blocks: (from, to) pairs."""
        if copies:
            sources, targets = np.array(copies, np.int32).T
            self._copy({"sources": sources.copy(), "targets": targets.copy()})

    def run(self, step: Step, draws: Sequence[Draw], needed: Collection[str]) -> Choices:
        """Runs a step; `draws`: how each of its rows chooses, `needed`: the features of all.

        Tokens of rows that are not the last of their text's mean nothing. With the feature
        "top_logprobs" all fields are given.
        """
        self.copy(step.copies)
        inputs = inputs_of(step, self.pool)
        adapters = {} if self.model.adapters is None else {"adapters": adapters_of(step)}
        # The first way that can do all that the rows need. A program for each set of features would
        # be many compiles, and a batch of mixed rows would still need the largest of them.
        features = next(way for way in WAYS if set(needed).issubset(way))
        # A chunk chooses behind its last piece; behind the pieces of this step come those that
        # round their number up.
        ends = [end - 1 for end in accumulate(len(row.pieces()) for row in step.chunks)]
        pieces = len(inputs.heads)
        rows = [*ends, *range(pieces, pieces + len(step.decodes))]
        placed = [NOBODY] * len(inputs.chosen)
        for number, draw in zip(rows, draws, strict=True):
            placed[number] = draw
        choices = choice_inputs(placed, features, self.vocab_size)
        seen = seen_inputs(step, self._names, pieces * PIECE, len(inputs.ids), self._vectors)
        results = self._steps[features](inputs._asdict() | adapters | choices | seen)
        return Choices(**{name: array[rows] for name, array in results.items()})
