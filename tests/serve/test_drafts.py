"""Speculation in a server: the texts are those without it, on the CPU and on devices."""

from __future__ import annotations

import pytest

from luminal.base.errors import InputError
from luminal.models import PromptLookup
from luminal.serve import program
from luminal.serve.drafts import check_vocabulary
from luminal.serve.engine import Engine, EngineOptions
from tests.backends.c_family.present import present
from tests.serve.running import CONTEXT, characters
from tests.serve.small_drafted import WAYS, model
from tests.serve.written import written

pytestmark = pytest.mark.long


def engine(backend: str, draft: str | None = None) -> Engine:
    """A small model, whose cache has too few blocks for all of its texts at once. `draft`: "same"
    is a copy of the model, which is always right, and "other" one that is mostly wrong.
    """
    drafts = {"lookup": PromptLookup, "same": lambda: model(5), "other": lambda: model(6)}
    options = EngineOptions(rows=16, chunk=32, size=4, cache=256, backend=backend)
    proposes = None if draft is None else drafts[draft]()
    return Engine(model(5), characters(), CONTEXT, options, proposes)


@pytest.fixture(autouse=True)
def few_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "WAYS", WAYS)


@pytest.fixture(scope="module")
def expected() -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "WAYS", WAYS)
        return written(engine("cpu"))


@pytest.mark.parametrize("draft", ["lookup", "same", "other"])
def test_texts_are_those_without_a_draft(draft: str, expected: list[str]) -> None:
    drafted = engine("cpu", draft)
    assert written(drafted) == expected
    load = drafted.load
    assert load.proposed > 0
    if draft == "same":
        assert load.accepted == pytest.approx(load.proposed, abs=60)  # behind a stop string
    if draft == "other":
        assert load.accepted < load.proposed / 2


@pytest.mark.parametrize("draft", [None, "lookup", "same"])
@pytest.mark.parametrize("name", present())
def test_devices_write_the_cpu_s_texts(name: str, draft: str | None, expected: list[str]) -> None:
    assert written(engine(name, draft)) == expected


def test_a_draft_of_another_vocabulary_is_refused() -> None:
    ours = characters()
    other = characters()
    other.vocab_size += 1  # type: ignore[misc]
    with pytest.raises(InputError, match=r"draft: its vocabulary has .* of the same vocabulary"):
        check_vocabulary(other, ours)
