"""Schedules found for the times at hand: pieces are dealt in the order in which they could run.

Whenever a rank is free it takes, of the pieces whose operands are there, the gradients of inputs
that others wait for first, then a forward pass while it may keep values of one more microbatch, and
the gradients of Parameters where else it would wait. How many microbatches, whether forward passes
of a later stage or of an earlier microbatch come first, and whether those gradients wait, are tried
in all ways, and the named schedules as well; the simulation says which is fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from luminal.base.errors import InputError
from luminal.distribute.pipeline.schedule import (
    FOUND,
    SCHEDULES,
    Kind,
    Piece,
    Schedule,
    check_counts,
    schedule_of,
    with_updates,
)
from luminal.distribute.pipeline.simulate import EQUAL, Seconds, Timeline, simulated, verified
from luminal.distribute.pipeline.steps import Edges, Message, Plan

_INFINITE = float("inf")


def found(
    ranks: int,
    stages: int,
    microbatches: int,
    seconds: Seconds = EQUAL,
    message: float = 0.0,
    *,
    live: int | None = None,
    edges: Edges | None = None,
) -> Schedule:
    """The schedule of least simulated seconds, and of these the one that keeps least, in which no
    rank keeps values of more than `live` pieces (twice as many as there are stages on ranks).

    Raises InputError for numbers that no schedule has, and where `live` leaves none.
    """
    check_counts(FOUND, ranks, stages, microbatches)
    edges = Edges.chain(stages) if edges is None else edges
    most = 2 * stages if live is None else live
    best: tuple[tuple[float, int], Schedule] | None = None
    for schedule in _candidates(ranks, stages, microbatches, seconds, message, most, edges):
        plan = Plan.of(schedule, edges)
        timeline = simulated(plan, seconds, message)
        if max(timeline.at_most) > most:
            continue
        worth = _worth(timeline)
        if best is None or worth < best[0]:
            best = worth, schedule
    if best is None:
        raise InputError(
            f"schedule {FOUND!r}: live={live!r} leaves no order of {stages} stages on {ranks} "
            f"ranks; a rank keeps at least {stages // ranks}, one for each of its stages"
        )
    verified(Plan.of(best[1], edges), seconds, message)
    return best[1]


def _worth(timeline: Timeline) -> tuple[float, int]:
    # Sums of times in another order differ by ulps, which shall not decide.
    return float(f"{timeline.seconds:.9g}"), max(timeline.at_most)


def _candidates(
    ranks: int, stages: int, microbatches: int, seconds: Seconds, message: float, most: int,
    edges: Edges,
) -> Iterator[Schedule]:  # fmt: skip
    for name in SCHEDULES:
        try:
            named = schedule_of(name, ranks, stages, microbatches)
        except InputError:  # it is for other numbers
            continue
        yield Schedule(FOUND, stages, microbatches, named.orders)
    chunks = stages // ranks
    limits = sorted({chunks * ranks, *range(chunks, most + 1, max(1, most // 8)), most})
    for limit, by_stage, waits in product(limits, (False, True), (False, True)):
        dealer = _Dealer(ranks, stages, microbatches, seconds, message, edges, limit)
        orders = dealer.dealt(by_stage, waits)
        if orders is not None:
            yield Schedule(FOUND, stages, microbatches, with_updates(orders))


class _Dealer:
    """Deals pieces to ranks that are free, each of which keeps values of at most `limit` pieces."""

    def __init__(
        self, ranks: int, stages: int, microbatches: int, seconds: Seconds, message: float,
        edges: Edges, limit: int,
    ) -> None:  # fmt: skip
        self._ranks, self._microbatches, self._limit = ranks, microbatches, limit
        self._edges, self._message = edges, message
        self._seconds: Callable[[Piece], float] = (
            seconds if callable(seconds) else lambda piece: seconds.get(piece.kind, 0.0)
        )
        self._done: dict[Piece, float] = {}
        self._live = [0] * ranks
        # Pieces of one part of a stage run in the order of microbatches: only the next one counts.
        self._left: list[dict[tuple[Kind, int], int]] = [
            {(kind, s): 0 for s in range(rank, stages, ranks) for kind in ("F", "I", "W")}
            for rank in range(ranks)
        ]

    def dealt(self, by_stage: bool, waits: bool) -> list[list[Piece]] | None:
        """The pieces of each rank; None where none can go on. `by_stage`: forward passes of later
        stages come first; `waits`: gradients of Parameters fill gaps, and else follow at once.
        """
        orders: list[list[Piece]] = [[] for _ in range(self._ranks)]
        clock = [0.0] * self._ranks
        while any(self._left):
            chosen: tuple[float, int, Piece] | None = None
            for rank in range(self._ranks):
                start, piece = self._next(rank, clock[rank], by_stage, waits)
                if piece is not None and (chosen is None or (start, rank) < chosen[:2]):
                    chosen = start, rank, piece
            if chosen is None:
                return None
            start, rank, piece = chosen
            clock[rank] = self._done[piece] = start + self._seconds(piece)
            self._live[rank] += {"F": 1, "W": -1}.get(piece.kind, 0)
            self._left[rank][piece.kind, piece.stage] += 1
            if piece.microbatch + 1 == self._microbatches:
                del self._left[rank][piece.kind, piece.stage]
            orders[rank].append(piece)
        return orders

    def _next(
        self, rank: int, now: float, by_stage: bool, waits: bool
    ) -> tuple[float, Piece | None]:
        """What a rank would run next, and when."""
        ready = []
        for (kind, stage), microbatch in self._left[rank].items():
            piece = Piece(kind, stage, microbatch)
            if piece.kind == "F" and self._live[rank] >= self._limit:
                continue
            if (at := self._arrival(rank, piece)) < _INFINITE:
                ready.append((max(now, at), self._rank_of(piece, by_stage, waits), piece))
        if not ready:
            return _INFINITE, None
        start, _, piece = min(ready)
        return start, piece

    def _rank_of(self, piece: Piece, by_stage: bool, waits: bool) -> tuple[int, int, int]:
        """The lower the sooner, of what can begin at one time."""
        first = {"I": 0, "F": 1, "W": 2} if waits else {"W": 0, "I": 1, "F": 2}
        if piece.kind == "F":
            group = piece.microbatch // self._ranks if by_stage else piece.microbatch
            return first["F"], group, piece.stage * (1 if by_stage else -1)
        return first[piece.kind], piece.microbatch, -piece.stage

    def _arrival(self, rank: int, piece: Piece) -> float:
        """When all that a piece reads is there; infinite where that is not known yet."""
        at = 0.0
        if piece.kind in ("I", "W"):
            at = self._done.get(piece._replace(kind="I" if piece.kind == "W" else "F"), _INFINITE)
        for message in self._edges.reads(piece):
            at = max(at, self._sent(rank, message))
        return at

    def _sent(self, rank: int, message: Message) -> float:
        source = Piece(message.kind, message.source, message.microbatch)
        away = message.source % self._ranks != rank
        return self._done.get(source, _INFINITE) + (self._message if away else 0.0)
