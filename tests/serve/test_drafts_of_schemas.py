"""Speculation of texts that follow schemas: they are those without it, and valid."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest

from luminal.models import PromptLookup
from luminal.models.constraints import json_schema, regex
from luminal.models.sampling import Sampling
from luminal.models.text import Text
from luminal.serve import engine as engines
from luminal.serve import program
from luminal.serve.engine import Engine, EngineOptions
from luminal.serve.jobs import Event, Job
from luminal.serve.workshop import matchers
from tests.serve.running import CONTEXT, Running, characters
from tests.serve.small_drafted import WAYS, model

pytest.importorskip("llguidance")
SCHEMA = {
    "type": "array", "minItems": 3, "maxItems": 4, "items": {"enum": ["red", "blue", "brown"]},
}  # fmt: skip
FORMS = {"schema": json_schema(SCHEMA), "pattern": regex("(ab|ac){4,9}x"), "none": None}
ASKS: list[tuple[str, dict[str, Any]]] = [
    ("ababab acac", {}),
    ('["red","blue","red","blue"]', {"temperature": 1.0, "seed": 4}),
]


def texts(engine: Engine) -> list[str]:
    """The texts of all forms and settings, which come together, twice each."""
    said: dict[Job, str] = {}
    left: set[Job] = set()
    wrong: list[str] = []
    ended = threading.Condition()

    def deliver(events: list[Event]) -> None:
        with ended:
            for event in events:
                wrong.extend([] if event.error is None else [event.error])
                said[event.job] = said.get(event.job, "") + event.piece
                if event.reason is not None or event.error is not None:
                    left.discard(event.job)
            ended.notify_all()

    engine.start(deliver)
    jobs = []
    try:
        for form in (*FORMS.values(), *FORMS.values()):
            for prompt, settings in ASKS:
                ids = engine.tokenizer.encode(prompt)
                size = engine.model.config.vocab_size
                matcher = None if form is None else form.matcher(engine.tokenizer, size)
                text = Text(engine.tokenizer, ids, 60, Sampling(**settings), (), matcher)
                jobs.append(engine.job(text, ids))
        with ended:
            left.update(jobs)
        for job in jobs:
            engine.submit([job])
        with ended:
            assert ended.wait_for(lambda: not left, 120.0)
        assert wrong == []
    finally:
        engine.stop()
    return [said[job] for job in jobs]


@pytest.mark.long
@pytest.mark.parametrize("draft", ["lookup", "model"])
def test_texts_are_those_without_drafts(draft: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "WAYS", WAYS)
    options = EngineOptions(rows=24, chunk=32, size=4, cache=1024)
    expected = texts(Engine(model(5), characters(), CONTEXT, options))
    monkeypatch.setattr(engines, "PATIENCE", 1000.0)  # steps of this model take no time
    proposes = PromptLookup() if draft == "lookup" else model(5)
    drafted = Engine(model(5), characters(), CONTEXT, options, proposes)
    assert texts(drafted) == expected
    for place in (0, 1, 6, 7):
        found = json.loads(expected[place])
        assert set(found) <= {"red", "blue", "brown"}
        assert 3 <= len(found) <= 4
    assert drafted.load.accepted > 0
    assert drafted.load.steps < sum(map(len, expected)) / 4


def test_masks_ahead_are_those_of_here(server: Running) -> None:
    """A process gives the masks that are computed here, and its matcher stays where it is."""
    worker, words = server.served.workshop.worker(), server.served.words
    try:
        (there,) = matchers(worker, json.dumps(SCHEMA), 1)
        (here,) = words.matchers(json.dumps(SCHEMA), 1)
        tokens = words.tokenizer.encode('["red"x')
        for _ in range(2):
            masks = there.ahead(tokens)
            assert len(masks) == len(tokens) - 1
            for mine, theirs in zip(masks, here.ahead(tokens), strict=True):
                np.testing.assert_array_equal(mine, theirs)
    finally:
        worker.end()
