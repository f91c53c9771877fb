"""What clients are told of a group's death, out of what its processes write."""

from __future__ import annotations

import asyncio

import pytest

from luminal.serve.last_words import handed_on, reason_in, reason_of

WATCHED = "luminal: rank 1 waits (its last: broadcast of a step): process 77 was killed by SIGKILL"


def test_lines_are_handed_on_whole(capfd: pytest.CaptureFixture[str]) -> None:
    """However they come, the last one without an end too; the first reason is the group's."""
    text = f"one\ntwo\n{WATCHED}\n{WATCHED.replace('rank 1', 'rank 0')}\nlast"

    async def read() -> str:
        stream = asyncio.StreamReader()
        task = asyncio.create_task(handed_on(stream))
        for character in text:
            stream.feed_data(character.encode())
            await asyncio.sleep(0)
        stream.feed_eof()
        return await task

    assert asyncio.run(read()) == "rank 1 was killed by SIGKILL"
    assert capfd.readouterr().err == text


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (WATCHED, "rank 1 was killed by SIGKILL"),
        (
            "luminal: a rank that has not come up: process 5 was killed by SIGSEGV",
            "a rank that has not come up was killed by SIGSEGV",
        ),
        (
            "luminal: rank 1 of 2 ends all: CollectiveTimeoutError: rank 1: a step has waited 60 s",
            "CollectiveTimeoutError: rank 1: a step has waited 60 s",
        ),
        (
            "luminal: rank 0 of 2 ends all: a step failed: MemoryError",
            "a step failed: MemoryError",
        ),
        ("luminal: rank 0 of 2 ends all: OSError: No such file: '/srv/secret'", ""),
        ('{"level": "info", "message": "group 0 serves, after 3 s"}', ""),
    ],
)
def test_reasons(line: str, reason: str) -> None:
    """Those of Luminal's own; others are for the log."""
    assert reason_in(line) == reason


def test_what_a_status_says() -> None:
    assert [reason_of(status) for status in (0, 75, 137)] == [
        "status 0", "status 75", "killed by SIGKILL",
    ]  # fmt: skip
