"""The programs of a language model: they read ids into caches and choose what comes next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import numpy as np

from luminal.base import garbage
from luminal.base.dtypes import int32
from luminal.base.errors import GraphError
from luminal.base.forks import rlock
from luminal.distribute.mesh import Mesh
from luminal.frontend.handle import Extent
from luminal.frontend.tensor import Tensor
from luminal.memory.arrays import HOST, MemorySpace
from luminal.memory.state import State
from luminal.models.cache_states import spread, states_of
from luminal.models.choice import choose, declared
from luminal.models.decoder import Decoder
from luminal.models.sampling import ADJUSTING, Draw, arrays, features_of
from luminal.models.seen import Part, Seen, common, inputs_of, names_of
from luminal.models.text import Text
from luminal.nn.recurrent_cache import RecurrentCache
from luminal.runtime.executable import Executable
from luminal.runtime.results import Results
from luminal.runtime.run import Run
from luminal.search.options import CompilationMode, mode_of
from luminal.session.graph import Graph, compile

Features = tuple[str, ...]
_BATCH = "batch prefill", "batch decode", "batch reorder"
MOST_PROPOSED = 16  # tokens of a speculation: more are seldom all right, and each costs a row


# Prompts of a batch are padded on the right: what padding leaves in a cache lies after its text's
# end, and is overwritten. A text alone has positions that are Expressions, so masks and slices are
# known and nothing is gathered.
class Programs:
    """Compiled at first use, each for all lengths; those of one kind share one set of caches.

    A text alone has caches of its own: its positions are Expressions, which costs least.
    """

    def __init__(
        self, model: Decoder, context: int, mode: CompilationMode | str, backend: str
    ) -> None:
        self.model, self.context = model, context
        self._mode, self._backend = mode, backend
        self.caches = model.make_caches(context)
        self.rows = 0  # of the caches of a batch
        self._batch_caches = self.caches[:0]
        self._made: dict[tuple[str, Features], Executable] = {}
        self._mesh: Mesh | None = None
        self.seconds = 0.0  # of compiling
        self._last: Text | None = None  # whose keys and values the caches of one text hold
        self._owner: object = None  # what began last
        self._token = State((1,), int32, name="token")  # of steps that are queued ahead
        self._started: Run | None = None  # the step after the last one that was read ahead
        self._lock = rlock()

    @cached_property
    def _is_queued(self) -> bool:
        """Does the device compute while the host goes on?"""
        return MemorySpace.by_name(self._backend) is not HOST

    def cut(self, mesh: Mesh) -> None:
        """Has all programs run on the ranks of a mesh of one axis, which make the same calls; each
        keeps the keys and values of its own heads. Raises InputError for another kind of cache.
        """
        self._mesh = mesh
        spread(self.caches, mesh)

    # --- running

    def begin(self) -> object:
        """The caches are for what begins now; what began before it has no turn any more."""
        with self._lock:
            self._owner, self._started = object(), None
            return self._owner

    @contextmanager
    def turn(self, owner: object) -> Iterator[None]:
        """A step of what began, while no other thread has one. Raises GraphError where something
        else began since.
        """
        with self._lock:
            if self._owner is not owner:
                raise GraphError(
                    "stream: another text was started on this model; finish one before the next"
                )
            yield

    @property
    def can_rewind(self) -> bool:
        """Can a text go back to an earlier token? Recurrent layers keep nothing of single ones."""
        return not any(isinstance(cache, RecurrentCache) for cache in self.caches)

    def resume(self, text: Text) -> None:
        """Counts as read what a text shares with the last one that was read alone."""
        if self._last is not None and self.can_rewind:
            held = self._last.draw.tokens[: self._last.read]
            # One token is read in any case: the choice of the next one needs its logits, which
            # nobody keeps.
            shared = common(self._last.images, text.images, _shared(held, text.draw.tokens))
            text.read = min(shared, len(text.draw.tokens) - 1)
            if text.images is not None:
                text.read = text.images.outside(text.read)  # an image is read as a whole

    @contextmanager
    def filling(self, text: Text) -> Iterator[None]:
        """The caches of one text come to hold what `text` has read; nothing known if this fails."""
        self._last = None
        # What the caches hold is not known while a run writes them. If it fails, the next text must
        # not go on from it.
        yield
        self._last = text

    def read(self, texts: Sequence[Text], features: Features) -> Results:
        """Reads what is unread of each text; chooses the next token of each, row by row.

        Of several texts with recurrent layers, which take no padding, each reads one token.
        """
        if len(texts) > 1:
            return self._read_batch(texts, features)
        (text,) = texts
        ids = text.unread
        inputs = self._choices([text.draw], features) | self._seen_by(text, len(ids))
        program = self.reader(features, text)
        with self.filling(text):
            results = program({"ids": ids, **inputs}, dims={"past": text.read})
            text.read = len(text.draw.tokens)
        return results

    def can_read_ahead(self, text: Text, features: Features) -> bool:
        """Can the step after the next token be queued before that token is known here? On a device
        that computes by itself, where neither a choice nor the caches depend on what it is.
        """
        if not self._is_queued or text.follows or len(text.unread) != 1 or not self.can_rewind:
            return False
        return text.images is None and {"allowed", *ADJUSTING}.isdisjoint(features)

    def read_ahead(self, text: Text, features: Features) -> Results:
        """Reads one token, as `read` does, while the step after it is queued already. The token
        goes from step to step in a State; where the text ends, one step was for nothing.
        """
        program, tokens = self._ahead(features), text.draw.tokens
        run, self._started = self._started, None
        with self.filling(text):
            if run is None:
                self._token.set(np.array(tokens[-1:], np.int32))
                run = self._start(program, text.draw, features, text.read)
            if len(tokens) < self.context - 1 and len(text.tokens) + 1 < text.room:
                # What the token will be is all the same to the choice after it.
                draw = Draw(text.draw.sampling, [*tokens, 0], text.draw.prompt)
                self._started = self._start(program, draw, features, text.read + 1)
            results = run.result()
            text.read = len(tokens)
        return results

    def _ahead(self, features: Features) -> Executable:
        return self.program(("decode ahead", features), lambda: self._record_ahead(features))

    def _start(self, program: Executable, draw: Draw, features: Features, past: int) -> Run:
        return program.start(self._choices([draw], features), dims={"past": past})

    def verify(self, text: Text, proposed: Sequence[int], ahead: Sequence[Draw]) -> list[int]:
        """The tokens that are chosen after what is unread, and after each proposed one (`ahead`).

        The caches hold the proposed ones then; `text.read` counts none of them.
        """
        draws = [text.draw, *ahead]
        features = features_of(draws)
        ids = np.concatenate((text.unread, np.array(proposed, np.int32)))
        names = names_of([Part(text.images, text.read, text.read + len(ids))])
        program = self.program(
            (_named("verify", names), features), lambda: self._record_verify(features, names)
        )
        inputs = {"ids": ids, **self._choices(draws, features), **self._seen_by(text, len(ids))}
        with self.filling(text):
            tokens = program(inputs, dims={"past": text.read})["tokens"]
            text.read = len(text.draw.tokens)
        return [int(token) for token in tokens]

    def _read_batch(self, texts: Sequence[Text], features: Features) -> Results:
        """Texts that are done read once more what they read last, and change nothing."""
        self._reserve(len(texts))
        starts, rows = [], []
        for text in texts:
            done = text.reason is not None
            start = text.read - 1 if done else text.read
            most = 1 if done or not self.can_rewind else None
            # A text that is done reads its last token again: its row stays in the batch, and what
            # it writes is what stands there already.
            starts.append(start)
            rows.append(text.draw.tokens[start:][:most])
        width = max(map(len, rows))
        ids = np.zeros((len(rows), width), np.int32)
        for row, new in zip(ids, rows, strict=True):
            row[: len(new)] = new
        positions = np.array(starts, np.int32)[:, None] + np.arange(width, dtype=np.int32)
        inputs = {"ids": ids, "positions": positions}
        if width > 1:
            inputs["last"] = np.array([len(new) - 1 for new in rows], np.int32)
        inputs |= self._choices([text.draw for text in texts], features)
        parts = [
            Part(text.images, start, start + len(new))
            for text, start, new in zip(texts, starts, rows, strict=True)
        ]
        names = names_of(parts)
        inputs |= inputs_of(parts, names, width)
        kind = _BATCH[width == 1]
        program = self.program(
            (_named(kind, names), features), lambda: self._record_batch(kind, features, names)
        )
        results = program(inputs, dims={"reach": int(positions.max()) + 1})
        for text, start, new in zip(texts, starts, rows, strict=True):
            text.read = start + len(new)
        return results

    def reorder(self, parents: Sequence[int]) -> None:
        """Row k of a batch's caches becomes what row `parents[k]` is."""
        if [*parents] != [*range(len(parents))]:
            program = self.program(("batch reorder", ()), self._record_reorder)
            program(parents=np.array([*parents, *range(len(parents), self.rows)], np.int32))

    def _reserve(self, rows: int) -> None:
        """Caches for so many texts, at least; programs for fewer are dropped."""
        if rows > self.rows:
            # By powers of two, so that growing batches do not compile anew for each size.
            self.rows = 1 << (rows - 1).bit_length()
            self._made = {
                key: program for key, program in self._made.items() if not key[0].startswith(_BATCH)
            }
            self._batch_caches = self.model.make_caches(self.context, batch=self.rows)
            if self._mesh is not None:
                spread(self._batch_caches, self._mesh)

    def _choices(self, draws: Sequence[Draw], features: Features) -> dict[str, np.ndarray]:
        return arrays(draws, features, self.model.config.vocab_size)

    def _seen_by(self, text: Text, count: int) -> dict[str, np.ndarray]:
        """What images add to the next `count` ids of a text alone."""
        part = Part(text.images, text.read, text.read + count)
        inputs = inputs_of([part], names_of([part]), count)
        return {name: a if name == "vectors" else a[0] for name, a in inputs.items()}

    # --- compiling

    def pair(self, features: Features = ()) -> tuple[Executable, Executable]:
        """For one text: what reads a prompt, and what reads one token."""
        return self._reader(features, self.context), self._reader(features, 1)

    def reader(self, features: Features, text: Text) -> Executable:
        """What reads the unread tokens of a text: the prompt's program, or that of single ones,
        each made when it is first wanted: the first token waits for one. They share a budget.
        """
        count = len(text.unread)
        names = names_of([Part(text.images, text.read, text.read + count)])
        return self._reader(features, count, names)

    def _reader(self, features: Features, tokens: int, names: tuple[str, ...] = ()) -> Executable:
        name, most = ("decode", 1) if tokens == 1 else ("prefill", self.context)
        return self.program(
            (_named(name, names), features),
            lambda: self._record(name, (1, most), features, names),
            2,
        )

    @property
    def has_programs(self) -> bool:
        """Is there any program?"""
        return bool(self._made)

    def program(
        self, key: tuple[str, Features], record: Callable[[], Graph], share: int = 1
    ) -> Executable:
        """The program of this name and options, recorded and compiled at its first use."""
        program = self._made.get(key)
        if program is None:
            start = time.perf_counter()
            mode = mode_of(self._mode).shared_by(share)
            if any(_is_interrupted(other) for other in self._made.values()):
                mode = CompilationMode.FAST  # Ctrl-C ends all searching at once
            with garbage.held():  # all that is recorded stays
                graph = record()
            program = self._made[key] = compile(
                graph, backend=self._backend, mode=mode, mesh=self._mesh
            )
            self.seconds += time.perf_counter() - start
        return program

    def _record(
        self, name: str, lengths: tuple[int, int], features: Features, names: tuple[str, ...]
    ) -> Graph:
        """ids (s,) after `past` tokens to the token after the last one."""
        graph, ids, past = self._text_graph(name, lengths)
        seen = self._declared(ids, names)
        logits = self.model(ids, self.caches, past, last_only=True, seen=seen)
        self._choose(logits, features)
        return graph

    def _record_ahead(self, features: Features) -> Graph:
        """The token in a State after `past` others to the one after it, which is there next."""
        graph = Graph("decode ahead")
        past = graph.dim("past", 0, self.context - 1)
        logits = self.model(graph.read(self._token), self.caches, past, last_only=True)
        graph.assign(self._token, self._choose(logits, features))
        return graph

    def _record_verify(self, features: Features, names: tuple[str, ...]) -> Graph:
        """ids (s,) after `past` tokens to the token after each of them."""
        graph, ids, past = self._text_graph("verify", (1, MOST_PROPOSED + 1))
        logits = self.model(ids, self.caches, past, seen=self._declared(ids, names))
        self._choose(logits, features)
        return graph

    def _declared(self, ids: Tensor, names: tuple[str, ...]) -> Seen:
        """The inputs of what images add to ids."""
        most = self.context * max(1, self.rows if ids.ndim > 1 else 1)
        return Seen.declared(ids, names, self.model.config.hidden_size, most)

    def _text_graph(self, name: str, lengths: tuple[int, int]) -> tuple[Graph, Tensor, Extent]:
        graph = Graph(name)
        past = graph.dim("past", 0, self.context - 1)
        # A literal 1 where there is only that: kernels of one token know it when they are made.
        s = graph.dim("s", *lengths) if lengths[1] > lengths[0] else lengths[0]
        return graph, graph.tensor((s,), dtype=int32, name="ids"), past

    def _record_batch(self, kind: str, features: Features, names: tuple[str, ...] = ()) -> Graph:
        """ids (b, s) at positions of their own to the token after the last one of each row."""
        graph = Graph(kind)
        b = graph.dim("b", 1, self.rows)
        shape = b, graph.dim("s", 1, self.context) if kind == _BATCH[0] else 1
        ids, positions = (graph.tensor(shape, int32, name) for name in ("ids", "positions"))
        reach = graph.dim("reach", 1, self.context)
        caches = [cache.within(reach) for cache in self._batch_caches]
        hidden = self.model.model(ids, caches, positions, seen=self._declared(ids, names))
        if kind == _BATCH[0]:
            # Rows have different lengths, and only the last token of each is chosen after: the
            # head, the largest matrix, multiplies one row a text.
            last = graph.tensor((b,), int32, "last")
            hidden = hidden[graph.arange(b), last]
        else:
            hidden = hidden[:, 0]
        self._choose(self.model.logits(hidden), features)
        return graph

    def _record_reorder(self) -> Graph:
        graph = Graph("reorder")
        parents = graph.tensor((self.rows,), int32, "parents")
        for state in states_of(self._batch_caches):
            graph.assign(state, graph.read(state)[parents])
        return graph

    def _choose(self, logits: Tensor, features: Features) -> Tensor:
        """The chosen tokens; they and all else that is told of them are outputs."""
        graph, (rows, vocab_size) = logits.graph, logits.extents
        inputs = declared(graph, rows, features, vocab_size.value)
        chosen = choose(logits, features, inputs)
        for name, value in chosen._asdict().items():
            if value is not None:
                value.output(name)
        return chosen.tokens


def _named(name: str, seen: Sequence[str]) -> str:
    """The name of a program that has these inputs, too."""
    return " ".join((name, *seen))


def _shared(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens both begin with."""
    for count, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return count
    return min(len(left), len(right))


def _is_interrupted(program: Executable) -> bool:
    search = program.report().search
    return search is not None and search.interrupted
