"""On a device the step after a token is queued before the token is known: the text is the same."""

from __future__ import annotations

from typing import Any

import pytest

from luminal.models.generate import LanguageModel
from luminal.models.programs import Programs
from tests.long_share import mostly_long
from tests.models.small_models import language_model, llama

OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"temperature": 1.0, "seed": 3, "top_k": 5},
    "with penalties": {"repetition_penalty": 1.5},
    "to a stop": {"stop": ["c"], "temperature": 1.0, "seed": 1},
}


@pytest.fixture(scope="module")
def models() -> tuple[LanguageModel, LanguageModel]:
    """One on the host, one on a device."""
    model = llama(layers=1)
    return language_model(model), language_model(model, "interpreted")


def texts(model: LanguageModel, **options: Any) -> list[str]:
    """Of two prompts, the second of which goes on from the caches of the first; to the room's end,
    and left half-way.
    """
    found = [model.generate("ab", 3, **options), model.generate("abca", 6, **options)]
    pieces = model.stream("ba", 4, **options)
    found += [next(pieces), next(pieces)]  # the second was read ahead, as a third is now
    pieces.close()  # type: ignore[attr-defined]
    return [*found, model.generate("ba", 2, **options)]


@pytest.mark.parametrize("name", mostly_long(OPTIONS, 1))
def test_texts_are_the_hosts(models: tuple[LanguageModel, LanguageModel], name: str) -> None:
    host, device = models
    assert texts(device, **OPTIONS[name]) == texts(host, **OPTIONS[name])


def test_a_step_is_under_way_when_a_token_is_read(
    models: tuple[LanguageModel, LanguageModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, device = models
    under_way: list[bool] = []
    read_ahead = Programs.read_ahead

    def counted(self: Programs, *arguments: Any) -> Any:
        results = read_ahead(self, *arguments)
        under_way.append(self._started is not None)
        return results

    monkeypatch.setattr(Programs, "read_ahead", counted)
    device.generate("ab", 6)
    assert under_way == [True, True, True, True, False]  # after the last one nothing is wanted
    host.generate("ab", 6)
    assert len(under_way) == 5  # the host has nothing to do meanwhile
