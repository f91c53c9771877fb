"""Runs the steps of a pipeline's plan on one rank: its pieces, and messages between ranks.

Sends are started and forgotten until the end of the step. Of what a rank is sent, the next few
messages of each sender are asked for ahead, in the order in which they are sent, so that they
arrive while a piece runs.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from luminal.base.records import dataclass
from luminal.distribute.pipeline.pieces import Key
from luminal.distribute.pipeline.schedule import Kind, Piece
from luminal.distribute.pipeline.simulate import Span
from luminal.distribute.pipeline.steps import Message, Plan, parts_of
from luminal.runtime.arrays import Array
from luminal.runtime.collectives.engine import Engine
from luminal.runtime.collectives.tickets import Label, Ticket

AHEAD = 2
"""So many messages of each sender are asked for before they are waited for."""
Run = Callable[[Mapping[str, Array], int], Mapping[str, Array]]
"""A piece: from what it takes, by name, and the microbatch to what it gives."""


class Channel:
    """One way between two ranks of a pipeline, seen by one of them: messages arrive in the order in
    which they are sent.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._unused = np.empty(0, np.uint8)  # what the other end has no use for

    def send(self, array: Array, label: str) -> Ticket:
        """Starts to send; the array must stay as it is until the ticket is done."""
        return self._start(array, self._nothing(array), label)

    def receive(self, array: Array, label: str) -> Ticket:
        """Asks for the next array, which is of this one's size."""
        return self._start(self._nothing(array), array, label)

    def wait(self, ticket: Ticket, *, first: bool) -> None:
        """Waits until an array has come, or has left."""
        self._engine.wait(ticket, first=first)

    def _start(self, source: Array, target: Array, label: str) -> Ticket:
        return self._engine.start("permute", source, target, label=Label(label), pairs=((0, 1),))

    def _nothing(self, array: Array) -> Array:
        if self._unused.nbytes < array.nbytes:
            self._unused = np.empty(array.nbytes, np.uint8)
        return self._unused[: array.nbytes]


def channels(engine: Engine, pairs: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Channel]:
    """The channels from rank to rank that begin or end at this one. All ranks must call it with the
    same pairs.
    """
    left, out = sorted(set(pairs)), {}
    while left:
        together: list[tuple[int, int]] = []
        for pair in left:  # as many at once as have no rank in common
            if not any({*pair} & {*other} for other in together):
                together.append(pair)
        left = [pair for pair in left if pair not in together]
        inside = {rank for pair in together for rank in pair}
        alone = [(rank,) for rank in range(engine.size) if rank not in inside]
        words = ", ".join(f"{source} to {target}" for source, target in together)
        group = engine.split([*together, *alone], f"pipe {words}")
        for pair in together:
            if engine.rank in pair:
                group.compares = False
                out[pair] = Channel(group)
    return out


@dataclass(slots=True)
class Running:
    """What one rank needs to run its steps: `run` has a function for each of its pieces, `takes`
    the names of what each reads of others, `until` the last part of a stage that needs a value,
    `shapes` the shape and dtype of each value that goes between pieces.
    """

    plan: Plan
    rank: int
    run: Mapping[Key, Run]
    takes: Mapping[Key, Sequence[str]]
    messages: Mapping[tuple[Kind, int, int], Sequence[str]]
    until: Mapping[tuple[int, str], Kind]
    shapes: Mapping[str, tuple[tuple[int, ...], Any]]
    channels: Mapping[tuple[int, int], Channel]
    first: bool = True  # other ranks may still compile
    live: int = 0
    """The most pieces of which values were kept at a time, in the last step."""
    _sent: list[tuple[Channel, Ticket]] = field(default_factory=list)
    _outbox: dict[Message, list[Array]] = field(default_factory=dict)

    def step(self) -> tuple[dict[str, list[Array]], list[Span]]:
        """Runs all pieces but updates. What they gave beside values for other pieces, in the order
        of microbatches, and when each ran.
        """
        inbox = {
            source: _Inbox(self, source, channel)
            for (source, target), channel in self.channels.items()
            if target == self.rank
        }
        held: dict[tuple[int, int], dict[str, Array]] = {}
        results: dict[str, list[Array]] = {}
        spans: list[Span] = []
        self.live = 0
        for step in self.plan.steps[self.rank]:
            what = step.what
            if isinstance(what, Message):
                if step.action == "send":
                    self._send(what)
                else:
                    kept = held.setdefault((what.target, what.microbatch), {})
                    kept.update(inbox[step.peer].take(what))
            elif what.kind != "U":
                spans += self._run(what, held, results)
                self.live = max(self.live, len(held))
        for channel, ticket in self._sent:
            channel.wait(ticket, first=self.first)
        self._sent.clear()
        self.first = False
        return results, spans

    def _run(
        self, piece: Piece, held: dict[tuple[int, int], dict[str, Array]],
        results: dict[str, list[Array]],
    ) -> list[Span]:  # fmt: skip
        place = piece.stage, piece.microbatch
        kept = held.setdefault(place, {})
        spans = []
        for kind in parts_of(piece):
            key, start = (kind, piece.stage), time.perf_counter()
            if key in self.run:
                arrays = {name: kept[name] for name in self.takes[key]}
                for name, array in self.run[key](arrays, piece.microbatch).items():
                    if name in self.shapes:
                        kept[name] = array
                    else:
                        results.setdefault(name, []).append(array)
            self._pass_on(kind, piece, held)
            for name in [n for n in kept if self.until.get((piece.stage, n)) == kind]:
                del kept[name]
            part = piece._replace(kind=kind)
            spans.append(Span(self.rank, part, start, time.perf_counter()))
        if "W" in parts_of(piece):
            del held[place]
        return spans

    def _pass_on(
        self, kind: Kind, piece: Piece, held: dict[tuple[int, int], dict[str, Array]]
    ) -> None:
        """Gives other stages of this rank what they are sent, and lays out what others are."""
        kept = held[piece.stage, piece.microbatch]
        for target in self.plan.edges.targets.get((kind, piece.stage), ()):
            names = self.messages[kind, piece.stage, target]
            if self.plan.schedule.rank_of(target) == self.rank:
                arrays = held.setdefault((target, piece.microbatch), {})
                arrays.update({name: kept[name] for name in names})
            else:
                message = Message(kind, piece.stage, target, piece.microbatch)
                self._outbox[message] = [kept[name] for name in names]

    def _send(self, message: Message) -> None:
        channel = self.channels[self.rank, self.plan.schedule.rank_of(message.target)]
        self._sent = [one for one in self._sent if not one[1].done]
        for value in self._outbox.pop(message):
            array = np.ascontiguousarray(value).reshape(-1)
            # The ticket holds the array, so no run takes its memory meanwhile.
            self._sent.append((channel, channel.send(array, str(message))))


class _Inbox:
    """What one rank sends to this one, in the order in which it does."""

    def __init__(self, running: Running, source: int, channel: Channel) -> None:
        self._running, self._channel = running, channel
        self._coming = deque(
            step.what
            for step in running.plan.steps[source]
            if step.action == "send"
            and step.peer == running.rank
            and isinstance(step.what, Message)
        )
        self._asked: dict[Message, list[tuple[Ticket, str, Array]]] = {}
        self._ask(AHEAD)

    def take(self, message: Message) -> dict[str, Array]:
        """Waits for a message; its values by name."""
        while message not in self._asked:
            self._ask(1)
        out = {}
        for ticket, name, array in self._asked.pop(message):
            self._channel.wait(ticket, first=self._running.first)
            out[name] = array
        self._ask(AHEAD - len(self._asked))
        return out

    def _ask(self, count: int) -> None:
        """Asks for the next messages, as far as there are any."""
        for _ in range(min(count, len(self._coming))):
            message = self._coming.popleft()
            names = self._running.messages[message.kind, message.source, message.target]
            self._asked[message] = []
            for name in names:
                array = np.empty(*self._running.shapes[name])
                ticket = self._channel.receive(array.reshape(-1), str(message))
                self._asked[message].append((ticket, name, array))
