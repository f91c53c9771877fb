"""Blocks of a paged cache: who holds which, and which hold what another text begins with.

Kwon et al., arXiv 2309.06180. A block has room for the keys and values of `size` tokens. What a
full block holds depends on its own tokens and on all before them, so its name is a digest of both;
texts that begin alike hold the same blocks. A block that nobody holds keeps its content until its
room is needed: the one that was given back first goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import blake2b

import numpy as np

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.models.seen import Images, Span


@dataclass(frozen=True)
class Content:
    """The tokens of a full block, behind those of the block named `before`; of a first block this
    is the adapter, b"" for none.

    Tokens that were generated are written as `~token`: their keys were computed one at a time, and
    are not bit for bit those of a prompt's. `spans`: images that have tokens here, all of which
    have one id: what these are is the images' pixels, of which a span has a digest.
    """

    before: bytes
    tokens: tuple[int, ...]
    spans: tuple[Span, ...] = ()

    @cached_property
    def name(self) -> bytes:
        """A digest of these tokens and all before them."""
        tokens = np.array(self.tokens, np.int64).tobytes()
        spans = (np.array([s.first, s.end], np.int64).tobytes() + s.digest for s in self.spans)
        # A digest and not Python's hash: what two prompts share is decided by it, and a client who
        # could make two texts collide would read another one's keys.
        return blake2b(self.before + tokens + b"".join(spans), digest_size=16).digest()


def contents_of(
    tokens: Sequence[int],
    prompt: int,
    size: int,
    first: Sequence[Content] = (),
    images: Images | None = None,
    adapter: int = 0,
) -> list[Content]:
    """What the full blocks of a text hold, whose first `prompt` tokens are its prompt.

    `first` are those of its first blocks. `adapter`: the number of what is beside the model's
    matrices, 0 for nothing: the same tokens have other keys and values then.
    """
    spans = () if images is None else images.spans
    contents = list(first)
    root = adapter.to_bytes(8, "little") if adapter else b""
    for start in range(len(contents) * size, len(tokens) - size + 1, size):
        before = contents[-1].name if contents else root
        places = range(start, start + size)
        held = tuple(tokens[k] if k < prompt else ~tokens[k] for k in places)
        shown = tuple(s for s in spans if s.first < start + size and s.end > start)
        contents.append(Content(before, held, shown))
    return contents


class BlockPool:
    """`count` blocks for `size` tokens each; a block is free, or held by one or several texts."""

    def __init__(self, count: int, size: int) -> None:
        for name, value in (("count", count), ("size", size)):
            if value < 1:
                raise InputError(f"blocks: {name} {value}; there must be at least 1")
        self.count, self.size = count, size
        self._holders = [0] * count
        # As a stack, from which the lowest number is taken first.
        self._empty = list(reversed(range(count)))
        self._idle: OrderedDict[int, None] = OrderedDict()  # free, with content; oldest first
        self._contents: dict[int, Content] = {}
        self._named: dict[bytes, int] = {}

    @property
    def free(self) -> int:
        """How many blocks nobody holds."""
        return len(self._empty) + len(self._idle)

    def needed(self, tokens: int) -> int:
        """How many blocks so many tokens fill or begin."""
        return -(-tokens // self.size)

    def take(self, count: int = 1) -> list[int]:
        """New blocks for one text, all or none. Raises InputError where fewer are free."""
        if count > self.free:
            raise InputError(f"blocks: {count} wanted, {self.free} free; ask `free` before")
        taken = [self._next() for _ in range(count)]
        for block in taken:
            self._holders[block] = 1
        return taken

    def _next(self) -> int:
        if self._empty:
            return self._empty.pop()
        # Only when no empty block is left does content go, so a prefix stays to be found for as
        # long as memory allows.
        block, _ = self._idle.popitem(last=False)
        del self._named[self._contents.pop(block).name]
        return block

    def hold(self, blocks: Iterable[int]) -> None:
        """One more text holds these blocks."""
        for block in blocks:
            self._idle.pop(block, None)
            self._holders[block] += 1

    def give_back(self, blocks: Sequence[int]) -> None:
        """A text no longer holds these, its blocks in order; its last ones are used again first."""
        for block in reversed(blocks):
            # The beginning of a text is what others share. Given back last, it is the last of these
            # blocks to be used again.
            if not self._holders[block]:
                raise InputError(f"blocks: {block} is given back, but nobody holds it")
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            if block in self._contents:
                self._idle[block] = None
            else:
                self._empty.append(block)

    def name(self, block: int, content: Content) -> None:
        """Notes what a full block holds, for `find`; where another holds the same, that one stays.

        Raises InputError where the content is no full block.
        """
        if len(content.tokens) != self.size:
            raise InputError(f"blocks: {len(content.tokens)} tokens are no block of {self.size}")
        if block not in self._contents and content.name not in self._named:
            self._contents[block] = content
            self._named[content.name] = block

    def find(self, contents: Iterable[Content]) -> list[int]:
        """The blocks that hold these contents of a text, up to the first that none holds.

        Whoever finds them holds them.
        """
        blocks: list[int] = []
        for content in contents:
            block = self._named.get(content.name)
            # The tokens are compared as well, so that equal digests alone never hand out another
            # text's keys and values.
            if block is None or self._contents[block] != content:
                break
            blocks.append(block)
        self.hold(blocks)
        return blocks

    def writable(self, block: int) -> bool:
        """Whether its only holder may write into a block: its content is not known to others."""
        return self._holders[block] == 1 and block not in self._contents
