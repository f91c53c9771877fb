"""Every family that sees, served: greedy tokens and log-probabilities of one process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.models import LanguageModel, PromptLookup
from tests.close import close_to_greatest
from tests.models.small_seeing import SMALL, saved
from tests.serve.seeing import CONTEXT, NEW, chats, messages, seeing, wanted

pytestmark = pytest.mark.long


@pytest.mark.parametrize("drafted", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_answers_are_those_of_one_process(name: str, drafted: bool, tmp_path: Path) -> None:
    saved(name, tmp_path)
    model = lm.models.load(tmp_path, backend="cpu", context=CONTEXT)
    assert isinstance(model, LanguageModel)
    pairs = [(parts, wanted(model, *parts)) for parts in chats()] * 2
    draft = PromptLookup() if drafted else None
    # Room for one text and a half: texts are computed again.
    with seeing(model, draft, cache=288) as server, server.client() as client:

        def check(pair: Any) -> None:
            parts, expected = pair
            found = client.chat.completions.create(
                model="tiny", messages=messages(*parts), temperature=0, max_tokens=NEW,
                logprobs=True,
            )  # fmt: skip
            (choice,) = found.choices
            assert choice.message.content == expected.text
            told = np.array([each.logprob for each in choice.logprobs.content])
            close_to_greatest(told, np.array(expected.logprobs))

        with ThreadPoolExecutor(12) as pool:
            list(pool.map(check, pairs))
        assert server.blocks_are_free()
