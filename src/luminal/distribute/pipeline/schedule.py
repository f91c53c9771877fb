"""Schedules of pipelines as data: for each rank the pieces that it runs, in order.

A piece is one part of one stage for one microbatch:

    F    the forward pass
    I    the gradients of what the stage was given
    W    the gradients of its Parameters
    B    I and W, one right after the other
    U    the update of its Parameters: once a step, behind all others

Stage s lies on rank s modulo the ranks. GPipe: Huang et al., NeurIPS 2019. 1F1B: Narayanan et al.,
PipeDream-Flush, ICML 2021. Interleaved: Narayanan et al., SC 2021. Zero bubble H1: Qi et al., ICLR
2024.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from luminal.base.errors import InputError
from luminal.base.near_names import suggestion
from luminal.base.number_kinds import is_count
from luminal.base.records import dataclass

Kind = Literal["F", "I", "W", "B", "U"]
PARTS: tuple[Kind, ...] = ("F", "I", "W", "U")
"""What is left where B is taken for the two that it is."""


class Piece(NamedTuple):
    """One part of a stage for one microbatch; U is of microbatch 0."""

    kind: Kind
    stage: int
    microbatch: int

    def __str__(self) -> str:
        batch = "" if self.kind == "U" else f" of microbatch {self.microbatch}"
        return f"{self.kind} of stage {self.stage}{batch}"


Orders = tuple[tuple[Piece, ...], ...]
"""The pieces of each rank, in the order in which it runs them."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """So many `stages` and `microbatches`, and what each rank runs; `orders` may be anybody's."""

    name: str
    stages: int
    microbatches: int
    orders: Orders

    @property
    def ranks(self) -> int:
        """How many ranks run it."""
        return len(self.orders)

    def rank_of(self, stage: int) -> int:
        """The rank that a stage lies on."""
        return stage % self.ranks

    def __str__(self) -> str:
        rows = (
            " ".join(
                p.kind + str(p.stage) + (f".{p.microbatch}" if p.kind != "U" else "") for p in order
            )
            for order in self.orders
        )
        return "\n".join(f"rank {rank}: {row}" for rank, row in enumerate(rows))


def gpipe(ranks: int, stages: int, microbatches: int) -> Orders:
    """All forward passes, then all backward passes."""
    return tuple(
        tuple(
            [Piece("F", s, i) for s in range(rank, stages, ranks) for i in range(microbatches)]
            + [
                Piece("B", s, i)
                for s in reversed(range(rank, stages, ranks))
                for i in range(microbatches)
            ]
        )
        for rank in range(ranks)
    )


def one_forward_one_backward(ranks: int, stages: int, microbatches: int) -> Orders:
    """Backward passes begin as soon as they can: a rank keeps values of at most as many
    microbatches as there are ranks.
    """
    orders = []
    for rank in range(ranks):
        stages_here = [*range(rank, stages, ranks)]
        ahead = min(ranks - 1 - rank, microbatches)
        order = [Piece("F", s, i) for i in range(ahead) for s in stages_here]
        for i in range(microbatches):
            if i + ahead < microbatches:
                order += [Piece("F", s, i + ahead) for s in stages_here]
            order += [Piece("B", s, i) for s in reversed(stages_here)]
        orders.append(tuple(order))
    return tuple(orders)


def interleaved(ranks: int, stages: int, microbatches: int) -> Orders:
    """1F1B whose ranks have several stages each, a chunk of microbatches at a time: the ends, where
    ranks wait, are shorter by as much.
    """
    chunks, total = stages // ranks, microbatches * (stages // ranks)

    def piece(kind: Kind, rank: int, number: int) -> Piece:
        group, place = divmod(number, stages)
        chunk, within = divmod(place, ranks)
        chunk = chunk if kind == "F" else chunks - 1 - chunk
        return Piece(kind, chunk * ranks + rank, group * ranks + within)

    orders = []
    for rank in range(ranks):
        ahead = min(2 * (ranks - 1 - rank) + (chunks - 1) * ranks, total)
        order = [piece("F", rank, k) for k in range(ahead)]
        for k in range(total):
            if k + ahead < total:
                order.append(piece("F", rank, k + ahead))
            order.append(piece("B", rank, k))
        orders.append(tuple(order))
    return tuple(orders)


def zero_bubble(ranks: int, stages: int, microbatches: int) -> Orders:
    """1F1B whose W pieces wait: those of rank r until r more of them wait, so that they fill what
    the others leave; no rank keeps more than by 1F1B.
    """
    orders = []
    for rank in range(ranks):
        ahead = min(ranks - 1 - rank, microbatches)
        order, waiting = [Piece("F", rank, i) for i in range(ahead)], []
        for i in range(microbatches):
            if i + ahead < microbatches:
                order.append(Piece("F", rank, i + ahead))
            order.append(Piece("I", rank, i))
            waiting.append(Piece("W", rank, i))
            if len(waiting) > rank:
                order.append(waiting.pop(0))
        orders.append((*order, *waiting))
    return tuple(orders)


class _Kind(NamedTuple):
    make: Callable[[int, int, int], Orders]
    takes_chunks: bool
    """May a rank have several stages?"""
    in_groups: bool = False
    """Do microbatches come in groups, as many as there are ranks?"""


SCHEDULES = {
    "gpipe": _Kind(gpipe, True),
    "1f1b": _Kind(one_forward_one_backward, False),
    "interleaved": _Kind(interleaved, True, True),
    "zero_bubble": _Kind(zero_bubble, False),
}
FOUND = "found"
"""The name of a schedule that a search finds for measured times."""


def schedule_of(name: str, ranks: int, stages: int, microbatches: int) -> Schedule:
    """The schedule of a name.

    Raises InputError for a name that is none, and for numbers that it is not made for.
    """
    if not isinstance(name, str) or name not in SCHEDULES:
        names = (*SCHEDULES, FOUND)
        raise InputError(
            f"schedule {name!r}: the schedules are {', '.join(names)}, or a Schedule of your own"
            f"{suggestion(name, names)}"
        )
    check_counts(name, ranks, stages, microbatches)
    kind = SCHEDULES[name]
    if stages != ranks > 1 and not kind.takes_chunks:
        raise InputError(
            f"schedule {name!r}: a rank has one stage, and there are {stages} stages on {ranks} "
            'ranks; give as many stages as ranks, or schedule="interleaved"'
        )
    if kind.in_groups and microbatches % ranks:
        raise InputError(
            f"schedule {name!r}: {microbatches} microbatches do not divide by the {ranks} ranks; "
            f"give {-(-microbatches // ranks) * ranks}"
        )
    make = one_forward_one_backward if stages == ranks > 1 and kind.in_groups else kind.make
    if ranks == 1 and not kind.takes_chunks:
        make = one_forward_one_backward  # nothing is left to wait for
    return Schedule(name, stages, microbatches, with_updates(make(ranks, stages, microbatches)))


def check_counts(name: str, ranks: int, stages: int, microbatches: int) -> None:
    """Raises InputError for numbers that no schedule has."""
    for what, count in (("ranks", ranks), ("stages", stages), ("microbatches", microbatches)):
        if not is_count(count):
            raise InputError(f"schedule {name!r}: {what} is {count!r}; give an int of at least 1")
    if stages % ranks:
        raise InputError(
            f"schedule {name!r}: {stages} stages do not divide by {ranks} ranks; give "
            f"{-(-stages // ranks) * ranks}"
        )


def with_updates(orders: Iterable[Iterable[Piece]]) -> Orders:
    """The orders with the update of each stage behind all pieces of its rank."""
    out = []
    for order in orders:
        pieces = tuple(order)
        stages = sorted({piece.stage for piece in pieces})
        out.append((*pieces, *(Piece("U", stage, 0) for stage in stages)))
    return tuple(out)
