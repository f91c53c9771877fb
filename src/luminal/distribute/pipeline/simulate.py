"""What a plan of a pipeline takes, and whether it can run at all: every step in the order given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.distribute.pipeline.schedule import PARTS, Piece, Schedule
from luminal.distribute.pipeline.steps import Message, Plan, Step, parts_of

Seconds = Mapping[str, float] | Callable[[Piece], float]
"""The seconds of a piece by its kind, or of each; what is not named takes none. B takes as long as
I and W.
"""
EQUAL: Mapping[str, float] = {"F": 1.0, "I": 1.0, "W": 1.0}
"""Pieces that take equally long."""


@dataclass(frozen=True, slots=True)
class Span:
    """When a rank ran a piece, in seconds since the step began."""

    rank: int
    piece: Piece
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """How a step goes: its `spans`, and of how many pieces a rank keeps values `at_most`."""

    ranks: int
    spans: tuple[Span, ...]
    at_most: tuple[int, ...] = ()

    @property
    def seconds(self) -> float:
        """From the first piece's start to the last one's end."""
        begin = min((span.start for span in self.spans), default=0.0)
        return max((span.end for span in self.spans), default=0.0) - begin

    @property
    def idle(self) -> float:
        """The share of the ranks' time in which they run no piece, from 0 to 1."""
        busy = sum(span.end - span.start for span in self.spans)
        return 1 - busy / (self.ranks * self.seconds) if self.spans else 0.0


def simulated(
    plan: Plan,
    seconds: Seconds = EQUAL,
    message: float | Callable[[Message], float] = 0.0,
    *,
    blocking: bool = False,
) -> Timeline:
    """The timeline of a plan whose pieces take so many `seconds` and whose messages arrive
    `message` seconds after they are sent.

    `blocking`: a send ends when its message has arrived, as in MPI's plain one of large values;
    else it is started and forgotten, as the engines do it. Raises InputError where ranks would wait
    for each other for ever; it says which rank waits for what.
    """
    run = _Run(plan, seconds, message, blocking)
    while run.advance():
        pass
    if run.stuck:
        raise InputError(f"schedule {plan.schedule.name!r}: {run.deadlock()}")
    return Timeline(plan.schedule.ranks, tuple(run.spans), tuple(run.at_most))


def verified(
    plan: Plan,
    seconds: Seconds = EQUAL,
    message: float | Callable[[Message], float] = 0.0,
    *,
    blocking: bool = False,
) -> Timeline:
    """The timeline of a plan in which every piece stands once on its rank, every message is sent
    and received once in one order, each piece has what it reads, and no rank waits for ever.

    Raises InputError that says what is wrong, and on which rank.
    """
    check_pieces(plan.schedule)
    _check_messages(plan)
    return simulated(plan, seconds, message, blocking=blocking)


def check_pieces(schedule: Schedule) -> None:
    """Raises InputError unless every part of every stage runs once for every microbatch, where its
    stage lies and in their order, by which gradients are summed.
    """
    name, seen = schedule.name, Counter[Piece]()
    last: dict[tuple[str, int], int] = {}
    for rank, order in enumerate(schedule.orders):
        for piece in order:
            if schedule.rank_of(piece.stage) != rank:
                raise InputError(
                    f"schedule {name!r}: rank {rank} runs {piece}, which lies on rank "
                    f"{schedule.rank_of(piece.stage)}; stage s is on rank s modulo the ranks"
                )
            seen.update(piece._replace(kind=kind) for kind in parts_of(piece))
            for kind in parts_of(piece):
                before = last.get((kind, piece.stage), -1)
                if before > piece.microbatch:
                    raise InputError(
                        f"schedule {name!r}: rank {rank} runs {piece} behind that of microbatch "
                        f"{before}; sums have one order: that of microbatches"
                    )
                last[kind, piece.stage] = piece.microbatch
    wanted = dict.fromkeys(
        Piece(kind, stage, i)
        for stage in range(schedule.stages)
        for kind in PARTS
        for i in range(schedule.microbatches if kind != "U" else 1)
    )
    for piece in (*wanted, *seen):
        if seen[piece] != 1 or piece not in wanted:
            count = f"runs {seen[piece]} times" if seen[piece] else "never runs"
            raise InputError(
                f"schedule {name!r}: {piece} {count}; each piece of the {schedule.stages} "
                f"stages and {schedule.microbatches} microbatches runs once"
            )


def _check_messages(plan: Plan) -> None:
    """Raises InputError where a message that is read is not sent, or not waited for."""
    steps = {
        action: Counter(
            (step.what, *((rank, step.peer) if action == "send" else (step.peer, rank)))
            for rank, of_rank in enumerate(plan.steps)
            for step in of_rank
            if step.action == action
        )
        for action in ("send", "receive")
    }
    schedule, wanted = plan.schedule, set[Any]()
    for order in schedule.orders:
        for piece in order:
            for message in plan.edges.reads(piece):
                ends = schedule.rank_of(message.source), schedule.rank_of(message.target)
                if ends[0] != ends[1]:
                    wanted.add((message, *ends))
    for message, source, target in (*sorted(wanted), *steps["send"], *steps["receive"]):
        sent = steps["send"][message, source, target]
        received = steps["receive"][message, source, target]
        if sent == received == 1:
            continue
        raise InputError(
            f"schedule {schedule.name!r}: rank {source} sends the {message} {_times(sent)}, and "
            f"rank {target} waits for it {_times(received)}; each message is sent and received once"
        )


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


class _Run:
    """A simulation under way: which step each rank is at, and when it got there."""

    def __init__(self, plan: Plan, seconds: Seconds, message: Any, blocking: bool) -> None:
        ranks = plan.schedule.ranks
        self._plan, self._blocking = plan, blocking
        self._seconds, self._message = seconds, message
        self._at, self._clock = [0] * ranks, [0.0] * ranks
        self._done: dict[Piece, float] = {}
        self._sent: dict[Message, float] = {}
        self._live = [0] * ranks
        self.at_most = [0] * ranks
        self.spans: list[Span] = []

    @property
    def stuck(self) -> bool:
        """Has a rank steps left?"""
        return any(map(self._next, range(len(self._at))))

    def _next(self, rank: int) -> Step | None:
        of_rank = self._plan.steps[rank]
        return of_rank[self._at[rank]] if self._at[rank] < len(of_rank) else None

    def advance(self) -> bool:
        """Every rank goes on until it has to wait. Has any gone on?"""
        moved = False
        for rank in range(len(self._at)):
            while (step := self._next(rank)) is not None and self._ready(rank, step):
                self._at[rank] += 1
                moved = True
        return moved

    def _ready(self, rank: int, step: Step) -> bool:
        """Does the rank's next step, unless it has to wait."""
        if isinstance(step.what, Piece):
            return self._runs(rank, step.what)
        if step.action == "send":
            return self._sends(rank, step)
        if step.what not in self._sent:
            return False
        self._clock[rank] = max(self._clock[rank], self._sent[step.what])
        return True

    def _sends(self, rank: int, step: Step) -> bool:
        assert isinstance(step.what, Message)
        start = self._clock[rank]
        if self._blocking:
            other = self._next(step.peer)
            if other is None or (other.action, other.what) != ("receive", step.what):
                return False
            start = max(start, self._clock[step.peer])
        arrival = start + (
            self._message(step.what) if callable(self._message) else float(self._message)
        )
        self._sent[step.what] = arrival
        if self._blocking:
            self._clock[rank] = arrival
        return True

    def _runs(self, rank: int, piece: Piece) -> bool:
        if self._lacks(rank, piece) is not None:
            return False
        start = self._clock[rank]
        kinds = parts_of(piece)
        for kind in kinds:
            part = piece._replace(kind=kind)
            end = self._clock[rank] + self._takes(part)
            self._clock[rank] = self._done[part] = end
            self._live[rank] += {"F": 1, "W": -1}.get(kind, 0)
            self.at_most[rank] = max(self.at_most[rank], self._live[rank])
        self.spans.append(Span(rank, piece, start, self._clock[rank]))
        return True

    def _takes(self, piece: Piece) -> float:
        if callable(self._seconds):
            return self._seconds(piece)
        return self._seconds.get(piece.kind, 0.0)

    def _lacks(self, rank: int, piece: Piece) -> Piece | Message | None:
        """What a piece reads that is not there."""
        schedule = self._plan.schedule
        if piece.kind in ("I", "B", "W"):
            earlier = piece._replace(kind="I" if piece.kind == "W" else "F")
            if earlier not in self._done:
                return earlier
        for message in self._plan.edges.reads(piece):
            if schedule.rank_of(message.source) == rank:
                source = Piece(message.kind, message.source, message.microbatch)
                if source not in self._done:
                    return source
            elif self._sent.get(message, float("inf")) > self._clock[rank]:
                return message  # no step has waited for it
        if piece.kind == "U":
            for i in range(schedule.microbatches):
                last = Piece("W", piece.stage, i)
                if last not in self._done:
                    return last
        return None

    def deadlock(self) -> str:
        """Which rank waits for what."""
        words = []
        for rank in range(len(self._at)):
            step = self._next(rank)
            if step is None:
                continue
            if isinstance(step.what, Piece):
                lacks = self._lacks(rank, step.what)
                words.append(f"rank {rank} waits with {step.what} for {self._where(lacks)}")
            elif step.action == "send":
                words.append(f"rank {rank} waits until rank {step.peer} takes the {step.what}")
            else:
                words.append(f"rank {rank} waits for the {step.what}, which rank {step.peer} sends")
        return f"ranks wait for each other for ever: {'; '.join(words)}; change their orders"

    def _where(self, what: Piece | Message | None) -> str:
        schedule = self._plan.schedule
        if isinstance(what, Message):
            return f"the {what}, which rank {schedule.rank_of(what.source)} sends"
        assert what is not None
        rank = schedule.rank_of(what.stage)
        return f"{what}, which comes later on rank {rank} or never"
