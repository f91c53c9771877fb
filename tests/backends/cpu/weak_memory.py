"""Memory as a machine with a weak order shows it: all values that a load may give.

Each word has its messages in the order they were written, and each thread a view: of each word the
oldest message that it may still read. A load takes any message from there on. A release sends the
writer's view along, an acquire joins the one it reads; what updates a word passes on the view of
the message before (a release sequence). Accesses that are seq_cst have one order among all of them,
and the kernel's futex is a full fence. Plain data has no messages: who touches it must have been
told of the last write of it, who writes it also of all reads since. Else that is a race.

Not there: loads that see what is stored later (load buffering): here what a store writes depends
on what was loaded before it, which every processor keeps in order. Stores that take their place
behind an older one: a store that has not seen the last value of its word is an error instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from operator import and_

View = tuple[int, ...]
Message = tuple[int, View | None, int]
"""A value, and what comes along: a view, and events of plain data as bits."""

GONE = 1 << 30  # what a thread that has ended may read
ACQUIRES = {"acquire", "acq_rel", "seq_cst"}
RELEASES = {"release", "acq_rel", "seq_cst"}


class BrokenRuleError(Exception):
    """What must never be."""


def joined(view: View, other: View) -> View:
    return tuple(map(max, view, other))


@dataclass
class Memory:
    """What all threads see. Words and threads go by number."""

    words: list[tuple[Message, ...]]
    views: list[View]
    knows: list[int]  # of each thread: the last accesses of plain data that happened before
    order: View  # of each word: the last message that is seq_cst
    asleep: tuple[tuple[int, int], ...] = ()  # words and who sleeps on them
    plain: dict[object, int] = field(default_factory=dict)
    blind: frozenset[int] = frozenset()  # words that may be stored to without a look
    strict: frozenset[int] = frozenset()  # words that are loaded in no order but seq_cst

    @classmethod
    def fresh(cls, values: list[int], threads: int) -> Memory:
        start = (0,) * len(values)
        words: list[tuple[Message, ...]] = [((value, None, 0),) for value in values]
        return cls(words, [start] * threads, [-1] * threads, start)

    def copy(self) -> Memory:
        parts = list(self.words), list(self.views), list(self.knows), self.order, self.asleep
        return Memory(*parts, dict(self.plain), self.blind, self.strict)

    def fork(self, thread: int) -> int:
        """A new thread, which knows what the one that started it knew."""
        self.views.append(self.views[thread])
        self.knows.append(self.knows[thread])
        return len(self.views) - 1

    def end(self, thread: int) -> None:
        """The thread looks at nothing any more."""
        self.views[thread], self.knows[thread] = (GONE,) * len(self.words), 0

    def key(self) -> tuple[object, ...]:
        self._forget()
        self.words = [
            tuple([self._news(word, number, message) for number, message in enumerate(messages)])
            for word, messages in enumerate(self.words)
        ]
        plain = tuple(sorted((str(place), value) for place, value in self.plain.items()))
        parts = tuple(self.words), tuple(self.views), tuple(self.knows), self.order, self.asleep
        return *parts, plain

    def _forget(self) -> None:
        """Messages that no thread may read any more go; the others are numbered anew."""
        least = list(map(min, zip(*self.views, strict=True)))
        for word in self.strict:
            least[word] = max(least[word], self.order[word])
        if not any(least):
            return
        old = tuple(least)

        def moved(view: View) -> View:
            return tuple([max(0, number - less) for number, less in zip(view, old, strict=True)])

        self.views = [view if view[:1] == (GONE,) else moved(view) for view in self.views]
        self.order = moved(self.order)
        self.words = [
            tuple((value, view and moved(view), known) for value, view, known in messages[less:])
            for messages, less in zip(self.words, old, strict=True)
        ]

    def _news(self, word: int, number: int, message: Message) -> Message:
        """The message without what all know that may read it: states differ by no more."""
        value, view, known = message
        if view is None and not known:
            return message
        readers = [k for k, view in enumerate(self.views) if view[word] <= number]
        known &= ~reduce(and_, [self.knows[reader] for reader in readers])
        if view is not None:
            old = map(min, zip(*[self.views[reader] for reader in readers], strict=True))
            pairs = zip(view, old, strict=True)
            view = tuple([0 if mine <= least else mine for mine, least in pairs])
        return value, view if view and any(view) else None, known

    # --- atomic accesses ---

    def _see(self, thread: int, word: int, number: int, order: str) -> int:
        value, view, known = self.words[word][number]
        own = list(self.views[thread])
        own[word] = max(own[word], number)
        self.views[thread] = tuple(own)
        if order in ACQUIRES:
            self.knows[thread] |= known
            if view is not None:
                self.views[thread] = joined(self.views[thread], view)
        return value

    def loads(self, thread: int, word: int, order: str) -> Iterator[tuple[int, Memory]]:
        """Each value that a load may give, and the memory after it."""
        oldest = self.views[thread][word]
        if order == "seq_cst":
            oldest = max(oldest, self.order[word])
        for number in range(oldest, len(self.words[word])):
            after = self.copy()
            yield after._see(thread, word, number, order), after

    def store(self, thread: int, word: int, value: int, order: str) -> Memory:
        if self.views[thread][word] < len(self.words[word]) - 1 and word not in self.blind:
            raise BrokenRuleError("a store to a word of which the last value has not been seen")
        after = self.copy()
        after._write(thread, word, value, order, None, 0)
        return after

    def update(self, thread: int, word: int, value: int, order: str) -> Memory:
        """The last message is read and `value` written behind it."""
        after = self.copy()
        after._see(thread, word, len(self.words[word]) - 1, order)
        _, view, known = self.words[word][-1]
        after._write(thread, word, value, order, view, known)
        return after

    def compare(
        self, thread: int, word: int, expected: int, value: int, order: str, failed: str
    ) -> Iterator[tuple[int, bool, Memory]]:
        """What was there, whether that was expected, and the memory after it."""
        if self.last(word) == expected:
            yield expected, True, self.update(thread, word, value, order)
        for there, after in self.loads(thread, word, failed):
            if there != expected:
                yield there, False, after

    def last(self, word: int) -> int:
        return self.words[word][-1][0]

    def _write(
        self, thread: int, word: int, value: int, order: str, view: View | None, known: int
    ) -> None:
        number = len(self.words[word])
        own = list(self.views[thread])
        own[word] = number
        self.views[thread] = tuple(own)
        if order in RELEASES:
            view = joined(view, self.views[thread]) if view else self.views[thread]
            known |= self.knows[thread]
        if order == "seq_cst":
            self.order = (*self.order[:word], number, *self.order[word + 1 :])
        self.words[word] = (*self.words[word], (value, view, known))

    # --- the kernel's futex ---

    def fence(self, thread: int) -> None:
        self.order = self.views[thread] = joined(self.order, self.views[thread])

    def waits(self, thread: int, word: int, expected: int) -> Iterator[Memory]:
        """The thread sleeps where the kernel reads `expected` in the low half of the word."""
        fenced = self.copy()
        fenced.fence(thread)
        for value, after in fenced.loads(thread, word, "monotonic"):
            if value & 0xFFFFFFFF == expected:
                after.asleep = tuple(sorted((*after.asleep, (word, thread))))
            yield after

    def wakes(self, thread: int, word: int) -> Memory:
        """All who sleep on the word go on."""
        after = self.copy()
        after.fence(thread)
        after.asleep = tuple(pair for pair in self.asleep if pair[0] != word)
        return after

    # --- plain data ---

    def read(self, thread: int, place: object, events: Events) -> None:
        if not self.knows[thread] & events.write(place):
            raise BrokenRuleError(f"a race: thread {thread} reads {place}, which another writes")
        self._happened(thread, events.read(place, thread))

    def write(self, thread: int, place: object, events: Events) -> None:
        wanted = events.write(place) | events.reads(place)
        if wanted & ~self.knows[thread]:
            raise BrokenRuleError(f"a race: thread {thread} writes {place}, which another uses")
        self._happened(thread, events.write(place))

    def _happened(self, thread: int, event: int) -> None:
        """An access took the place of the last one of its kind: so far nobody else knows of it."""
        self.knows = [known & ~event for known in self.knows]
        self.words = [
            messages
            if all(not known & event for _, _, known in messages)
            else tuple((value, view, known & ~event) for value, view, known in messages)
            for messages in self.words
        ]
        self.knows[thread] |= event


class Events:
    """The bits of last accesses: of each place its write, and its read by each thread."""

    def __init__(self) -> None:
        self._bits: dict[object, int] = {}
        self._readers: dict[object, int] = {}

    def write(self, place: object) -> int:
        return self._bits.setdefault(place, 1 << len(self._bits))

    def read(self, place: object, thread: int) -> int:
        event = self._bits.setdefault((place, thread), 1 << len(self._bits))
        self._readers[place] = self._readers.get(place, 0) | event
        return event

    def reads(self, place: object) -> int:
        return self._readers.get(place, 0)
