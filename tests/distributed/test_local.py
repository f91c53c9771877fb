"""Ranks that are threads: every case of the table, and how they fail."""

import threading
import time
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base import config
from luminal.base.errors import CollectiveError, CollectiveTimeoutError, InputError
from luminal.runtime.collectives.engine import Engine
from luminal.runtime.collectives.local import run_local
from luminal.runtime.collectives.tickets import Label
from tests.distributed.engine_cases import check, check_groups

WORD = Label("gradient of w", "layers.0.mlp")


def total(engine: Engine, label: Label | str = WORD) -> int:
    """The sum of all ranks' numbers."""
    value, result = np.array([engine.rank]), np.empty(1, int)
    engine.run("all_reduce", value, result, label=label)
    return int(result[0])


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_cases(size: int) -> None:
    with config.override(LUMINAL_VERIFY=False):
        run_local(size, check, timeout=20)


def test_cases_that_ranks_compare() -> None:
    run_local(2, check, timeout=20)


@pytest.mark.parametrize("size", [2, 4, 6])
def test_groups(size: int) -> None:
    run_local(size, check_groups, timeout=20)


def test_results_are_in_the_order_of_ranks() -> None:
    assert run_local(3, lambda engine: (engine.rank, total(engine))) == [(0, 3), (1, 3), (2, 3)]


def test_each_rank_draws_as_a_process_does() -> None:
    def drawn(engine: Engine | None) -> list[float]:
        lm.manual_seed(3)
        values = []
        for _ in range(3):
            if engine is not None:
                engine.barrier()  # by turns, where all had one generator
            values += [float(lm.rand(1)), float(lm.nn.Linear(1, 1).weight.item())]
        return values

    lm.manual_seed(5)
    ranks = run_local(2, drawn)
    assert lm.initial_seed() == 5
    assert ranks == [drawn(None)] * 2


def test_a_failing_rank_ends_the_others() -> None:
    def work(engine: Engine) -> None:
        if engine.rank == 1:
            raise ZeroDivisionError("of rank 1")
        total(engine)

    start = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="of rank 1") as failure:
        run_local(2, work)
    assert time.monotonic() - start < 2
    assert failure.value.__notes__ == ["on rank 1 of 2"]


def test_a_stuck_rank_is_named() -> None:
    release = threading.Event()

    def work(engine: Engine) -> None:
        engine = engine.split([[0, 1, 2]], "data")
        total(engine, "loss")
        if engine.rank == 1:
            release.wait(20)
        total(engine)

    start = time.monotonic()
    with pytest.raises(CollectiveTimeoutError) as failure:
        run_local(3, work, timeout=0.3)
    release.set()
    assert time.monotonic() - start < 2
    text = str(failure.value)
    assert (
        "all_reduce of 'gradient of w' of layer 'layers.0.mlp' over mesh axis 'data' has waited "
        "0.3 s; not come: rank 1 computes (its last: all_reduce of 'loss' over mesh axis 'data')"
    ) in text
    assert "rank 2" not in text.split("not come")[1]


def test_a_rank_that_has_ended_is_not_waited_for() -> None:
    def work(engine: Engine) -> None:
        total(engine, "loss")
        if engine.rank != 1:
            total(engine)

    start = time.monotonic()
    with pytest.raises(
        CollectiveError, match=r"will not come: rank 1 has ended \(its last: .*loss"
    ):
        run_local(2, work)
    assert time.monotonic() - start < 2


def test_abort_ends_all() -> None:
    def work(engine: Engine) -> None:
        if engine.rank == 0:
            engine.abort("the disk is full")
        total(engine)

    with pytest.raises(CollectiveError, match="all ranks end: rank 0: the disk is full"):
        run_local(2, work)


def test_different_collectives_are_named_at_once() -> None:
    def work(engine: Engine) -> None:
        value = np.zeros(2, np.float32)
        if engine.rank == 0:
            engine.run("all_reduce", value, value, label="loss")
        else:
            engine.run("broadcast", value, value, label="weights")

    with pytest.raises(
        CollectiveError, match=r"rank 0 all_reduce of 'loss'.*rank 1 broadcast of 'w"
    ):
        run_local(2, work)
    with (
        config.override(LUMINAL_VERIFY=False),
        pytest.raises(CollectiveTimeoutError, match="all have come, but to different ones"),
    ):
        run_local(2, work, timeout=0.2)


def test_different_programs_are_named_by_line() -> None:
    def work(engine: Engine) -> None:
        engine.check_same("a = 1\nb = 2" + "\nc = 3" * (engine.rank == 2), "the program of 'step'")

    with pytest.raises(
        CollectiveError,
        match="the program of 'step' differs between ranks, first in line 3: rank 0 has '', rank 2 "
        "has 'c = 3'",
    ):
        run_local(3, work)


@pytest.mark.parametrize(
    ("kind", "source", "target", "options", "text"),
    [
        ("all_reduce", 2, 3, {}, "16 bytes to 24; the target of all_reduce must be as large as"),
        ("all_gather", 2, 2, {}, "must be 2 times the source"),
        ("reduce_scatter", 2, 2, {}, "must be 1/2 of the source"),
        ("all_to_all", 1, 1, {}, None),
        ("permute", 1, 1, {"pairs": ((0, 1), (0, 0))}, "each rank from 0 to 1 sends at most once"),
        ("permute", 1, 1, {"pairs": ((0, 2),)}, "receives at most once"),
        ("broadcast", 1, 1, {"root": 2}, "root is 2; the group has ranks 0 to 1"),
        ("broadcast", 1, 1, {"root": "0"}, "root is '0'; the group has ranks 0 to 1"),
        ("all_reduce", 1, 1, {"monoid": "mean"}, "monoid is 'mean'; it is one of sum, prod"),
        ("gather", 1, 1, {}, "it is one of all_reduce, all_gather, "),
    ],
)
def test_what_breaks_a_rule_is_refused(
    kind: str, source: int, target: int, options: dict[str, object], text: str | None
) -> None:
    def work(engine: Engine) -> None:
        engine.run(kind, np.zeros(source), np.zeros(target), label="x", **options)  # type: ignore[arg-type]

    if text is None:
        run_local(2, work)
        return
    with pytest.raises(InputError, match=f"{kind} of 'x': .*{text}"):
        run_local(2, work)


def test_buffers_that_do_not_fit_are_refused() -> None:
    def refused(source: object, target: object) -> str:
        def work(engine: Engine) -> None:
            engine.run("all_reduce", source, target, label="x")  # type: ignore[arg-type]

        with pytest.raises(InputError) as failure:
            run_local(1, work)
        return str(failure.value)

    assert "the source is not contiguous" in refused(np.zeros((4, 4)).T[:2], np.zeros(8))
    constant = np.zeros(2)
    constant.flags.writeable = False
    assert "the target cannot be written" in refused(np.zeros(2), constant)
    assert "a reduction keeps the dtype" in refused(np.zeros(2), np.zeros(2, int))
    assert "the target is a list; give an array of numbers" in refused(np.zeros(1), [0.0])
    objects = np.array([None])
    assert "the source is a ndarray; give an array of numbers" in refused(objects, np.zeros(1))
    assert "bools have no sum" in refused(np.zeros(2, bool), np.zeros(2, bool))


@pytest.mark.parametrize("size", [0, -1, 1.5, "2", None, True])
def test_sizes_that_are_none_are_refused(size: Any) -> None:
    with pytest.raises(InputError, match=r"run_local: size is .*; give an int of at least 1"):
        run_local(size, lambda engine: None)
    with pytest.raises(InputError, match="a collective's timeout is"):
        run_local(1, lambda engine: None, timeout="2" if size is None else -1)  # type: ignore[arg-type]
