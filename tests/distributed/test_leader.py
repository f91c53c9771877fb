"""What one rank finds out for all: its answer, its error, however long it takes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from luminal.base.errors import CollectiveError, CompileError
from luminal.distributed import run_local
from luminal.runtime.collectives import leader
from luminal.runtime.collectives.leader import from_leader


def test_only_the_first_rank_is_asked() -> None:
    asked: list[int] = []

    def work(engine: Any) -> dict[str, int]:
        def find() -> dict[str, int]:
            asked.append(engine.rank)
            return {"rank": engine.rank}

        return from_leader(engine, find, "a test")

    assert run_local(3, work, timeout=20) == [{"rank": 0}] * 3
    assert asked == [0]


class _Odd(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"odd {one + two}")


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (CompileError("no such kernel"), CompileError, "no such kernel"),
        (_Odd(1, 2), CollectiveError, "rank 0: _Odd: odd 3"),
        (KeyboardInterrupt(), CollectiveError, "rank 0: KeyboardInterrupt: "),
    ],
)
def test_its_error_is_that_of_all(raised: BaseException, kind: type[Exception], text: str) -> None:
    def work(engine: Any) -> BaseException:
        def find() -> None:
            raise raised

        try:
            from_leader(engine, find, "a test")
        except BaseException as error:
            return error
        raise AssertionError

    first, *others = run_local(3, work, timeout=20)
    assert first is raised
    for error in others:
        assert isinstance(error, kind)
        assert str(error) == text
        assert error.__notes__ == ["raised by rank 0, which does this for all: a test"]


def test_a_leader_may_take_longer_than_any_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "BEAT_SECONDS", 0.05)

    def work(engine: Any) -> int:
        return from_leader(engine, lambda: time.sleep(0.8) or 7, "a test")  # type: ignore[func-returns-value]

    assert run_local(2, work, timeout=0.03) == [7, 7]  # ten times that for the first


def test_nobody_waits_for_a_leader_that_has_ended() -> None:
    def work(engine: Any) -> int:
        return 0 if engine.rank == 0 else from_leader(engine, lambda: 7, "a test")

    start = time.monotonic()
    with pytest.raises(CollectiveError, match="will not come: rank 0 has ended"):
        run_local(2, work, timeout=20)
    assert time.monotonic() - start < 10
