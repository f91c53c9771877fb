"""Continuous batching: which tokens of which texts the next run computes.

Yu et al., Orca, OSDI 2022; Agrawal et al., arXiv 2308.16369 (chunks of prompts beside decoding).
No I/O, no clock, no arrays. A step runs the next token of every text that has read its prompt, and
chunks of some prompts, each prompt in its turn. Texts are admitted in the order of their arrival
while there are rows and blocks for them. Those that follow a matcher, which may take long at every
token while they keep their row, have a share of the rows only, and so have all texts of requests
but their first: who asks for many at once leaves rows to others. Where blocks run out, the text
that arrived last gives its own back and is computed again later; so the oldest always goes on, and
everyone's turn comes.

The tokens of a prompt always run in chunks, all others one at a time, also when they are computed
again: a program's bits may depend on that, but on nothing else of what the machine does besides.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.models.seen import Images
from luminal.serve.blocks import BlockPool, Content, contents_of

PIECE = 16
"""Tokens of a prompt that run side by side, those of one piece: fewer take about as long."""
FOLLOWING = 4  # of so many rows one may be of a text that follows a matcher
FURTHER = 4  # of so many rows one may be of a request's second text, third ...


@dataclass(slots=True, eq=False)
class Text:
    """A prompt and what was generated after it.

    It ends at a token of `ends` or with `limit` tokens. `sibling`: a text of the same prompt that
    was added before; this one waits for it and shares its blocks. `follows`: which token may come
    next is computed elsewhere, after each. `further`: it is not the first text of its request.
    `images`: those in the prompt. `adapter`: the number of the one that it is written with, 0 for
    none.
    """

    tokens: list[int]
    limit: int
    ends: frozenset[int] = frozenset()
    sibling: Text | None = None
    follows: bool = False
    further: bool = False
    images: Images | None = None
    adapter: int = 0
    prompt: int = field(init=False)
    """How many of the tokens are the prompt."""
    computed: int = field(default=0, init=False)
    """The keys and values of so many tokens are in the cache."""
    cached: int = field(default=0, init=False)
    """So many tokens of the prompt were found in the cache."""
    blocks: list[int] = field(default_factory=list, init=False)
    finish: str | None = field(default=None, init=False)
    """Why it ended: "stop" at a token of `ends`, "length", "cancelled"; None before."""
    number: int = field(default=-1, init=False)
    turn: int = field(default=0, init=False)
    held: bool = field(default=False, init=False)
    """It takes part in no step: what it follows is still asked."""
    contents: list[Content] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.prompt = len(self.tokens)
        if not 0 < self.prompt < self.limit:
            raise InputError(
                f"text: {self.prompt} tokens of {self.limit}; give a prompt, and room after it"
            )

    @property
    def reads(self) -> bool:
        """Whether some of the prompt is still to be run."""
        return self.computed < self.prompt

    def known(self, size: int) -> list[Content]:
        """What its full blocks of so many tokens hold."""
        return contents_of(self.tokens, self.prompt, size, self.contents, self.images, self.adapter)

    def readable(self, most: int) -> int:
        """How many tokens of the prompt may be read next, of `most`; 0 where that is too few.

        Tokens that see all of their image are read with all of it.
        """
        end = min(self.prompt, self.computed + most)
        if self.images is not None and self.images.whole:
            end = self.images.outside(end)
        return max(0, end - self.computed)

    def reach(self, position: int) -> int:
        """Before which position the keys lie that one sees."""
        if self.images is not None and self.images.whole:
            return max([position, *(s.end for s in self.images.spans if s.first < position)])
        return position


@dataclass(frozen=True, slots=True)
class Row:
    """`count` tokens of a text from position `start`; or one that is `proposed` to stand there."""

    text: Text
    start: int
    count: int
    proposed: int | None = None

    @property
    def token(self) -> int:
        """The first of its tokens."""
        return self.text.tokens[self.start] if self.proposed is None else self.proposed

    @property
    def holds(self) -> bool:
        """Whether its token stands there: one that is proposed may have been wrong."""
        tokens = self.text.tokens
        return self.proposed is None or [self.proposed] == tokens[self.start : self.start + 1]

    @property
    def last(self) -> bool:
        """Whether the text goes on with what is chosen after this row."""
        return self.start + self.count == len(self.text.tokens)

    def pieces(self, size: int = PIECE) -> list[range]:
        """The positions of a chunk's tokens, by pieces of `size`."""
        end = self.start + self.count
        return [range(first, min(first + size, end)) for first in range(self.start, end, size)]


@dataclass(frozen=True, slots=True)
class Step:
    """What one run computes: rows of one token, chunks of prompts.

    Before anything is written, blocks are copied: (from, to) pairs.
    """

    decodes: tuple[Row, ...]
    chunks: tuple[Row, ...]
    copies: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, the chunks first."""
        return (*self.chunks, *self.decodes)


class Scheduler:
    """Plans steps for at most `max_rows` texts at a time.

    `pieces`: the chunks of a step have so many together, of `piece` tokens each.
    """

    def __init__(self, pool: BlockPool, max_rows: int, pieces: int, piece: int = PIECE) -> None:
        for name, value in (("max_rows", max_rows), ("pieces", pieces), ("piece", piece)):
            if value < 1:
                raise InputError(f"scheduler: {name} {value}; it must be at least 1")
        self.pool, self.max_rows, self.pieces, self.piece = pool, max_rows, pieces, piece
        self.followers = max(1, max_rows // FOLLOWING)
        self.further = max(1, max_rows // FURTHER)
        self.preemptions = 0
        self._waiting: list[Text] = []  # by number
        self._running: dict[int, Text] = {}
        self._added = self._turns = 0

    @property
    def waiting(self) -> int:
        """How many texts have no blocks."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """How many texts have blocks."""
        return len(self._running)

    def check(self, limit: int) -> None:
        """Raises InputError if a text of so many tokens can never be held."""
        room = self.pool.count * self.pool.size
        if limit > room:
            raise InputError(f"text: {limit} tokens; the cache holds {room}: ask for fewer")

    def add(self, text: Text) -> None:
        """Puts a text at the end of the queue. Raises InputError if it can never be held."""
        self.check(text.limit)
        text.number, self._added = self._added, self._added + 1
        self._waiting.append(text)

    def cancel(self, text: Text) -> None:
        """Ends a text now; its blocks are free. Nothing if it has ended."""
        if text.finish is None:
            if text.number in self._running:
                self._end(text, "cancelled")
            else:
                self._waiting.remove(text)
                text.finish = "cancelled"

    # --- planning

    def step(self) -> Step | None:
        """The next step; None if there is nothing to run. `done` must follow before another."""
        self._admit()
        copies: list[tuple[int, int]] = []
        decodes, chunks = [], []
        counts = self._next_prompts()
        for text in self._oldest_first():
            if text.held:
                continue
            if text.reads and text.number not in counts:
                continue
            if not self._make_room(text, copies):
                continue
            if text.reads:
                chunks.append(Row(text, text.computed, counts[text.number]))
            else:
                decodes.append(Row(text, text.computed, 1))
        if decodes or chunks:
            return Step(tuple(decodes), tuple(chunks), tuple(copies))
        if all(text.held for text in self._running.values()):
            return None
        return self.step()  # the prompts whose turn it was gave way

    # Chunks of prompts run beside rows of one token, or whoever writes would wait for each new
    # prompt. Chunks are always read as chunks and tokens one at a time, also when a text is
    # computed again: sums of the two are not bit for bit the same.
    def _next_prompts(self) -> dict[int, int]:
        """How many tokens are read of prompts, by number: those that have waited longest."""
        prompts = [text for text in self._running.values() if text.reads and not text.held]
        counts: dict[int, int] = {}
        left = self.pieces
        self._turns += 1
        for text in sorted(prompts, key=lambda candidate: (candidate.turn, candidate.number)):
            if not left:
                break
            count = text.readable(left * self.piece)
            if not count:
                continue  # its turn comes first in a later step
            counts[text.number] = count
            left -= -(-count // self.piece)
            text.turn = self._turns
        return counts

    def _oldest_first(self) -> Iterator[Text]:
        """The running texts, without those that lose their blocks meanwhile."""
        for number in sorted(self._running):
            if number in self._running:
                yield self._running[number]

    def _admit(self) -> None:
        """Gives blocks to those who wait, in order, up to the first for whom there are too few.

        Those that have a share of the rows wait for that, and hold up nobody else.
        """
        running = self._running.values()
        following = sum(text.follows for text in running)
        further = sum(text.further for text in running)
        for text in list(self._waiting):
            if len(running) == self.max_rows:
                return
            if (text.follows and following == self.followers) or (
                text.further and further == self.further
            ):
                continue
            sibling = text.sibling
            if sibling is not None and sibling.finish is None and sibling.reads:
                continue
            if not self._place(text):
                return
            self._waiting.remove(text)
            self._running[text.number] = text
            following += text.follows
            further += text.further

    def _place(self, text: Text) -> bool:
        """Takes the blocks for all tokens of a text, or none if there are too few.

        Each running text could take another block at once: so many stay free.
        """
        text.contents = text.known(self.pool.size)
        shared, computed = self._shared(text)
        missing = self.pool.needed(len(text.tokens)) - len(shared)
        if missing + len(self._running) > self.pool.free:
            self.pool.give_back(shared)
            return False
        text.blocks, text.computed = shared + self.pool.take(missing), computed
        if len(text.tokens) == text.prompt:
            text.cached = computed
        return True

    def _shared(self, text: Text) -> tuple[list[int], int]:
        """Blocks with the beginning of a text, now held for it, and how many tokens that is.

        The last token is run in any case: what it gives chooses the next.
        """
        most = len(text.tokens) - 1
        sibling = text.sibling
        is_new = len(text.tokens) == text.prompt
        if is_new and sibling is not None and sibling.number in self._running:
            blocks = sibling.blocks[: self.pool.needed(most)]
            self.pool.hold(blocks)
            return blocks, most
        blocks = self.pool.find(text.contents[: most // self.pool.size])
        return blocks, len(blocks) * self.pool.size

    # The text that came last gives its blocks back, so the oldest always goes on and nobody
    # starves. What it had is computed again: copying keys and values out would need room for them
    # elsewhere.
    def _make_room(self, text: Text, copies: list[tuple[int, int]]) -> bool:
        """Sees to it that the next token's block is there and the text's own.

        False if the text itself had to give its blocks back.
        """
        number = text.computed // self.pool.size
        if number < len(text.blocks) and self.pool.writable(text.blocks[number]):
            return True
        while not self.pool.free:
            youngest = self._running[max(self._running)]
            self._preempt(youngest)
            if youngest is text:
                return False
        (new,) = self.pool.take()
        if number < len(text.blocks):
            old, text.blocks[number] = text.blocks[number], new
            copies.append((old, new))
            self.pool.give_back([old])
        else:
            text.blocks.append(new)
        return True

    def _preempt(self, text: Text) -> None:
        self._release(text)
        text.computed = 0
        self.preemptions += 1
        insort(self._waiting, text, key=lambda other: other.number)

    # --- tokens that are proposed

    def room(self, step: Step, most: int) -> dict[Text, int]:
        """How many tokens, of `most`, may be proposed for texts that the step writes: as the rows
        that are left allow, the same for each. The blocks for them are the texts' own then.

        None that other texts could need at once is taken, and no text gives its own back.
        """
        writing = [row.text for row in step.decodes if row.last]
        share = min(most, (self.max_rows - len(step.decodes)) // max(1, len(writing)))
        room: dict[Text, int] = {}
        for text in writing:
            spare = max(0, self.pool.free - len(self._running))
            held = (len(text.blocks) + spare) * self.pool.size
            count = min(share, text.limit - len(text.tokens) - 1, held - len(text.tokens))
            if count > 0:
                missing = self.pool.needed(len(text.tokens) + count) - len(text.blocks)
                text.blocks += self.pool.take(max(0, missing))
                room[text] = count
        return room

    def proposed(self, step: Step, proposals: Mapping[Text, Sequence[int]]) -> Step:
        """The step with a row for each token that is proposed, behind that of its text."""
        rows: list[Row] = []
        for row in step.decodes:
            tokens = enumerate(proposals.get(row.text, ()), row.start + 1)
            rows += [row, *(Row(row.text, place, 1, token) for place, token in tokens)]
        return Step(tuple(rows), step.chunks, step.copies)

    # --- results

    def done(self, step: Step, tokens: Sequence[int]) -> list[bool]:
        """Takes what the step chose, a token for each of its rows; says which of these go on a
        text.

        Others are of rows that are not the last of a text's tokens, or behind a proposed one that
        was wrong. What was cancelled since the step was planned is left aside.
        """
        return [self._done(row, token) for row, token in zip(step.rows, tokens, strict=True)]

    def _done(self, row: Row, token: int) -> bool:
        text = row.text
        if text.number not in self._running or not row.holds:
            return False
        goes_on = row.last
        self._note(text, row.start + row.count)
        if goes_on:
            text.tokens.append(token)
            if token in text.ends:
                self._end(text, "stop")
            elif len(text.tokens) >= text.limit:
                self._end(text, "length")
        return goes_on

    def _note(self, text: Text, computed: int) -> None:
        """Keys and values up to `computed` are there; others may share the blocks they fill."""
        size = self.pool.size
        filled = range(text.computed // size, computed // size)
        text.computed = computed
        if filled:
            text.contents = text.known(size)
        for number in filled:
            self.pool.name(text.blocks[number], text.contents[number])

    def _end(self, text: Text, finish: str) -> None:
        self._release(text)
        text.finish = finish

    def _release(self, text: Text) -> None:
        del self._running[text.number]
        self.pool.give_back(text.blocks)
        text.blocks = []
