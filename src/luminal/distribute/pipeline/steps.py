"""What a rank does for a schedule: its pieces, and before and behind them messages of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from luminal.base.records import dataclass
from luminal.distribute.pipeline.schedule import Kind, Piece, Schedule


class Message(NamedTuple):
    """What a piece sends to a later stage (F) or an earlier one (I), for one microbatch."""

    kind: Kind
    source: int
    target: int
    microbatch: int

    def __str__(self) -> str:
        what = "values" if self.kind == "F" else "gradients"
        return (
            f"{what} of stage {self.source} for stage {self.target}, microbatch {self.microbatch}"
        )


@dataclass(frozen=True, slots=True)
class Edges:
    """Which stages' pieces read what other stages' give, by kind (F: values of the forward pass,
    I: gradients) and stage: `sources` of what a stage reads, `targets` of what it gives.
    """

    sources: Mapping[tuple[str, int], Sequence[int]]
    targets: Mapping[tuple[str, int], Sequence[int]]

    @staticmethod
    def of(pairs: Iterable[tuple[str, int, int]]) -> Edges:
        """The edges of such (kind, source, target)."""
        sources: dict[tuple[str, int], list[int]] = {}
        targets: dict[tuple[str, int], list[int]] = {}
        for kind, source, target in sorted(set(pairs)):
            sources.setdefault((kind, target), []).append(source)
            targets.setdefault((kind, source), []).append(target)
        return Edges(sources, targets)

    @staticmethod
    def chain(stages: int) -> Edges:
        """Each stage reads what the one before gives, and nothing else."""
        pairs = [(s, s + 1) for s in range(stages - 1)]
        return Edges.of([("F", s, t) for s, t in pairs] + [("I", t, s) for s, t in pairs])

    def reads(self, piece: Piece) -> list[Message]:
        """The messages, or what takes their place on one rank, that a piece reads."""
        return [
            Message(kind, source, piece.stage, piece.microbatch)
            for kind in parts_of(piece)
            for source in self.sources.get((kind, piece.stage), ())
        ]

    def gives(self, piece: Piece) -> list[Message]:
        """The messages, or what takes their place on one rank, that a piece gives."""
        return [
            Message(kind, piece.stage, target, piece.microbatch)
            for kind in parts_of(piece)
            for target in self.targets.get((kind, piece.stage), ())
        ]


class Step(NamedTuple):
    """One thing that a rank does: it runs a piece, sends a message, or waits for one."""

    action: Literal["run", "send", "receive"]
    what: Piece | Message
    peer: int = -1
    """The rank at the other end of a message."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps of all ranks, in order."""

    schedule: Schedule
    edges: Edges
    steps: tuple[tuple[Step, ...], ...]

    @staticmethod
    def of(schedule: Schedule, edges: Edges | None = None) -> Plan:
        """The plan in which each piece waits for what it reads, right before it runs, and what it
        gives is sent at once.
        """
        edges = Edges.chain(schedule.stages) if edges is None else edges
        steps = tuple(
            tuple(step for piece in order for step in _around(schedule, edges, piece))
            for order in schedule.orders
        )
        return Plan(schedule, edges, steps)


def parts_of(piece: Piece) -> tuple[Kind, ...]:
    """The parts that a piece has: B is I and W."""
    return ("I", "W") if piece.kind == "B" else (piece.kind,)


def _around(schedule: Schedule, edges: Edges, piece: Piece) -> Iterator[Step]:
    rank = schedule.rank_of(piece.stage)
    for message in edges.reads(piece):
        if (peer := schedule.rank_of(message.source)) != rank:
            yield Step("receive", message, peer)
    yield Step("run", piece)
    for message in edges.gives(piece):
        if (peer := schedule.rank_of(message.target)) != rank:
            yield Step("send", message, peer)
