"""The table of cases that every engine must pass: `check(engine)` runs it on one rank of a group.

The expected values are computed here from what all ranks give, in float64 or in integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from luminal.runtime.collectives.engine import Engine
from luminal.runtime.collectives.tickets import Monoid

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES = [
    np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
    np.float16, ml_dtypes.bfloat16, np.float32, np.float64,
]  # fmt: skip
HALVES = (np.float16, ml_dtypes.bfloat16)
COMBINE: dict[Monoid, Callable[..., Any]] = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def draw(rank: int, count: int, dtype: Any) -> Array:
    """What a rank gives: small integers, so that sums of all dtypes but bool are exact."""
    numbers = np.random.default_rng(1000 + rank).integers(0, 4, count)
    return (numbers - (np.dtype(dtype).kind not in "ub")).astype(dtype)


def gathered(engine: Engine, count: int, dtype: Any) -> list[Array]:
    """What all ranks give."""
    return [draw(rank, count, dtype) for rank in range(engine.size)]


def check(engine: Engine, dtypes: Sequence[Any] = DTYPES) -> None:
    """All cases, in one order on all ranks."""
    for dtype in dtypes:
        _check_moves(engine, dtype)
        _check_reductions(engine, dtype)
    _check_halves_are_rounded_once(engine)
    _check_extremes(engine)
    _check_in_place(engine)
    _check_in_flight(engine)
    _check_large(engine)
    _check_small_things(engine)
    _check_nothing(engine)


def _same(result: Array, expected: Array) -> None:
    assert result.dtype == expected.dtype
    assert result.tobytes() == expected.tobytes(), (result, expected)


def _check_moves(engine: Engine, dtype: Any) -> None:
    rank, size = engine.rank, engine.size
    sources = gathered(engine, 3 * size, dtype)
    own = sources[rank]

    target = np.empty(3 * size * size, dtype)
    engine.run("all_gather", own, target, label="x")
    _same(target, np.concatenate(sources))

    target = np.empty(3 * size, dtype)
    engine.run("all_to_all", own, target, label="x")
    _same(target, np.concatenate([other[3 * rank : 3 * rank + 3] for other in sources]))

    engine.run("broadcast", own, target, label="x", root=size - 1)
    _same(target, sources[-1])

    ring = tuple((sender, (sender + 1) % size) for sender in range(size))
    engine.run("permute", own, target, label="x", pairs=ring)
    _same(target, sources[rank - 1])

    engine.run("permute", own, target, label="x", pairs=((size - 1, 0),))
    _same(target, sources[-1] if rank == 0 else np.zeros_like(own))


def _check_reductions(engine: Engine, dtype: Any) -> None:
    rank, size = engine.rank, engine.size
    sources = gathered(engine, 5 * size, dtype)
    for monoid, combine in COMBINE.items():
        if dtype is np.bool_ and monoid == "sum":
            continue
        total = sources[0]
        for other in sources[1:]:
            total = combine(total, other).astype(dtype)
        target = np.empty(5 * size, dtype)
        engine.run("all_reduce", sources[rank], target, label="x", monoid=monoid)
        _same(target, total)
        target = np.empty(5, dtype)
        engine.run("reduce_scatter", sources[rank], target, label="x", monoid=monoid)
        _same(target, total[5 * rank : 5 * rank + 5])
        _same(sources[rank], draw(rank, 5 * size, dtype))  # as it was


def _check_halves_are_rounded_once(engine: Engine) -> None:
    """One and many small values: rounded after each addition they would all be lost."""
    for dtype in HALVES:
        epsilon = float(ml_dtypes.finfo(dtype).eps)
        values = np.full(3, 1 if engine.rank == 0 else 0.5 * epsilon, dtype)
        total = np.empty_like(values)
        engine.run("all_reduce", values, total, label="half")
        _same(total, np.full(3, 1 + (engine.size - 1) * 0.5 * epsilon, dtype))


def _check_extremes(engine: Engine) -> None:
    """A NaN wins on all ranks, and -0 is below +0."""
    last = engine.size - 1
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64):
        for monoid, sign in (("max", 1), ("min", -1)):
            values = np.array([engine.rank, -np.inf, np.inf, 0, 0, -5], dtype) * sign
            values[3] = np.nan if engine.rank == 0 else 7
            values[4] = -0.0 if (engine.rank == 0) == (sign > 0) else 0.0
            result = np.empty_like(values)
            engine.run("all_reduce", values, result, label="extreme", monoid=monoid)  # type: ignore[arg-type]
            expected = np.array([last, -np.inf, np.inf, np.nan, 0, -5], dtype) * sign
            np.testing.assert_array_equal(result.astype(float), expected.astype(float))
            if engine.size > 1:
                assert bool(np.signbit(result[4])) == (sign < 0)


def _check_in_place(engine: Engine) -> None:
    values = draw(engine.rank, 64, np.float32)
    engine.run("all_reduce", values, values, label="in place")
    _same(values, sum(gathered(engine, 64, np.float32)))  # type: ignore[arg-type]
    values = draw(engine.rank, 64, np.float32)
    engine.run("broadcast", values, values, label="in place", root=0)
    _same(values, draw(0, 64, np.float32))


def _check_in_flight(engine: Engine) -> None:
    """Many are started before the first is waited for; they are waited for in another order."""
    flights = []
    for number in range(40):
        source = draw(engine.rank, 1 + 37 * number, np.int64) + number
        target = np.empty_like(source)
        kind = "all_reduce" if number % 3 else "broadcast"
        flights.append(
            (engine.start(kind, source, target, label=f"flight {number}"), source, target)  # type: ignore[arg-type]
        )
    for number in sorted(range(40), key=lambda number: (number * 7) % 40):
        ticket, source, target = flights[number]
        engine.wait(ticket)
        assert ticket.done
        everyone = [other + number for other in gathered(engine, source.size, np.int64)]
        _same(target, sum(everyone) if number % 3 else everyone[0])  # type: ignore[arg-type]


def _check_large(engine: Engine) -> None:
    """Some megabytes: what engines move in pieces."""
    source = np.arange(1 << 20, dtype=np.float32) + engine.rank
    target = np.empty_like(source)
    ticket = engine.start("all_reduce", source, target, label="large")
    engine.wait(ticket)
    size = engine.size
    _same(target, np.arange(1 << 20, dtype=np.float32) * size + size * (size - 1) / 2)


def _check_small_things(engine: Engine) -> None:
    texts = engine.exchange(b"x" * (3 * engine.rank), "texts")
    assert texts == [b"x" * (3 * rank) for rank in range(engine.size)]
    assert engine.broadcast_object({"rank": engine.rank}, "object") == {"rank": 0}
    engine.barrier()
    engine.set_timeout(30)
    engine.check_same("one\ntwo", "program")


def _check_nothing(engine: Engine) -> None:
    """Arrays without elements move like others."""
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"):
        engine.run(kind, np.empty(0, np.float32), np.empty(0, np.float32), label="nothing")  # type: ignore[arg-type]


def check_groups(engine: Engine) -> None:
    """A mesh of two axes: sums along each, and tickets of both in flight at a time."""
    size = engine.size
    columns = 2
    rows = size // columns
    by_row = [[row * columns + column for column in range(columns)] for row in range(rows)]
    by_column = [list(group) for group in zip(*by_row, strict=True)]
    tensor, data = engine.split(by_row, "tensor"), engine.split(by_column, "data")
    assert (tensor.size, data.size) == (columns, rows)
    assert (tensor.rank, data.rank) == (engine.rank % columns, engine.rank // columns)
    assert engine.split(by_row, "tensor") is tensor
    value = np.array([engine.rank], np.int64)
    sums = [np.empty(1, np.int64) for _ in range(2)]
    tickets = [
        group.start("all_reduce", value, total, label="x")
        for group, total in zip((tensor, data), sums, strict=True)
    ]
    assert "over mesh axis 'tensor'" in tickets[0].title
    for group, ticket in zip((tensor, data), tickets, strict=True):
        group.wait(ticket)
    assert sums[0] == sum(by_row[data.rank])
    assert sums[1] == sum(by_column[tensor.rank])
    reverse = engine.split([list(reversed(range(size)))], "reverse")
    assert reverse.rank == size - 1 - engine.rank
