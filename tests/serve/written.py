"""Texts that an engine writes for a mix of clients, without HTTP."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from luminal.base.errors import InputError
from luminal.models.sampling import Sampling
from luminal.models.text import Text
from luminal.serve.engine import Engine
from luminal.serve.jobs import Event, Job

PREFIX = "a shared beginning of some length: "
Client = tuple[str, dict[str, Any], Sequence[str]]
CLIENTS: list[Client] = [
    (PREFIX + "one", {}, ()),
    (PREFIX + "two", {"temperature": 0.8, "seed": 3}, ()),
    ("ab ab ab ab ab", {}, ()),
    ("ab ab ab ab ab", {"temperature": 1.1, "top_k": 7, "seed": 2**40}, ()),
    (PREFIX + "one", {"repetition_penalty": 1.3, "frequency_penalty": 0.2}, ()),
    ("x", {}, ("e", "q")),
    ("who stops early", {"temperature": 0.5, "seed": 9}, ("a", "o", "7")),
]
"""Prompts, settings and stop strings: greedy and drawn, with and without penalties."""
TIME = 120.0  # seconds until all must have ended: over the stand-in of a device


def written(
    engine: Engine, new: int = 24, rounds: int = 2, clients: Sequence[Client] = CLIENTS
) -> list[str]:
    """The texts of all clients, who come in rounds that overlap; between them come others that
    leave after a few tokens, two for one prompt, and one whose text is too long. In the end all
    blocks are free.
    """
    texts: dict[Job, str] = {}
    left: set[Job] = set()
    leaving: dict[Job, int] = {}
    wrong: list[str] = []
    ended = threading.Condition()

    def deliver(events: list[Event]) -> None:
        with ended:
            for event in events:
                if event.error is not None:
                    wrong.append(event.error)
                texts[event.job] = texts.get(event.job, "") + event.piece
                if event.reason is not None or event.error is not None:
                    left.discard(event.job)
                if event.job in leaving:
                    leaving[event.job] -= 1
                    if leaving[event.job] == 0:
                        engine.cancel([event.job])
            ended.notify_all()

    def job(prompt: str, settings: dict[str, Any], stop: Sequence[str] = ()) -> Job:
        ids = engine.tokenizer.encode(prompt)
        text = Text(engine.tokenizer, ids, new, Sampling(**settings), stop)
        return engine.job(text, ids)

    engine.start(deliver)
    try:
        jobs = []
        for _ in range(rounds):
            for client in clients:
                jobs.append(job(*client))
                left.add(jobs[-1])
                engine.submit(jobs[-1:])
            two = [job("twice the same", {"temperature": 1.0, "seed": seed}) for seed in (5, 6)]
            left.update(two)
            jobs += two
            engine.submit(two)
            gone = job(PREFIX + "and gone", {})
            leaving[gone] = 3
            engine.submit([gone])
            with pytest.raises(InputError, match="the cache holds"):
                engine.job(Text(engine.tokenizer, [1], 10**6), [1])
            with ended:  # these are half written when the next round comes
                while jobs[-1] in left and len(texts.get(jobs[-1], "")) <= new // 2:
                    assert ended.wait(TIME)
        with ended:
            assert ended.wait_for(lambda: not left, TIME), f"{len(left)} texts have not ended"
        assert wrong == []
        load = engine.call(lambda: engine.load).result(TIME)
        assert load.free_blocks == load.blocks, "blocks of texts that are gone are held"
        assert load.running == load.waiting == 0
    finally:
        engine.stop()
    return [texts[each] for each in jobs]
