"""Steps of a paged cache against the same decoder without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError
from luminal.models.decoder import Decoder
from luminal.models.decoder_config import LayerConfig
from luminal.models.sampling import Draw, Sampling, features_of, words_of
from luminal.runtime.device import Device
from luminal.serve.blocks import BlockPool
from luminal.serve.program import StepProgram
from luminal.serve.scheduler import Scheduler, Text
from tests.close import close
from tests.serve.small_decoder import CONFIG, decoder

PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [9], [8, 7, 6, 5, 4, 3, 2, 1, 9, 10, 11], [1, 2, 3, 4, 5, 6, 7]]


def plain(model: Decoder) -> Any:
    """Log-probabilities of whole texts, without a cache."""
    graph = lm.Graph()
    ids = graph.tensor((graph.dim("s", 1, 128),), dtype=lm.int32, name="ids")
    model(ids).log_softmax(-1).output("logprobs")
    compiled = graph.compile(backend="reference")
    return lambda tokens: compiled({"ids": np.array(tokens, np.int32)})["logprobs"]


def served(program: StepProgram, scheduler: Scheduler, texts: Sequence[Text]) -> dict[Text, Any]:
    """Runs texts to their ends, greedily; the likeliest tokens at each, and their logarithms."""
    found: dict[Text, list[Any]] = {text: [] for text in texts}
    for text in texts:
        scheduler.add(text)
    while (step := scheduler.step()) is not None:
        draws = [Draw(Sampling(), row.text.tokens, row.text.prompt) for row in step.rows]
        chosen = program.run(step, draws, ["top_logprobs"])
        assert chosen.top_tokens is not None
        assert chosen.top_logprobs is not None
        pairs = zip(step.rows, chosen.top_tokens, chosen.top_logprobs, strict=True)
        for row, tokens, logprobs in pairs:
            if row.last:
                found[row.text].append((tokens.copy(), logprobs.copy()))
        scheduler.done(step, chosen.tokens.tolist())
    return found


def check(model: Decoder, found: dict[Text, Any]) -> None:
    """The log-probabilities are those of the whole texts, and greedy ones were taken."""
    whole = plain(model)
    for text, logprobs in found.items():
        expected = whole(text.tokens)[text.prompt - 1 : -1]
        assert len(logprobs) == len(expected)
        for new, (tokens, own), all_ in zip(
            text.tokens[text.prompt :], logprobs, expected, strict=True
        ):
            assert new == tokens[0]
            close(own, all_[tokens])


def make(backend: str, blocks: int, pieces: int) -> StepProgram:
    """For 8 rows and texts of up to 32 tokens."""
    return StepProgram(decoder(), BlockPool(blocks, 4), 8, pieces, context=32, backend=backend)


@pytest.fixture(scope="module")
def large() -> StepProgram:
    """A cache with room for everybody."""
    return make("cpu", 40, 4)


@pytest.fixture(scope="module")
def small() -> StepProgram:
    """A cache in which texts are computed again."""
    return make("cpu", 7, 4)


def check_steps(program: StepProgram) -> None:
    """Mixed steps, chunks, shared and copied blocks, texts that are computed again."""
    scheduler = Scheduler(program.pool, max_rows=3, pieces=1, piece=4)
    texts = [Text(list(prompt), len(prompt) + 6) for prompt in PROMPTS]
    texts.append(Text(list(PROMPTS[3]), 12, sibling=texts[3]))
    found = served(program, scheduler, texts)
    assert scheduler.preemptions > 0
    assert max(text.cached for text in texts) > 4
    check(program.model, found)


def test_steps_give_the_logits_of_whole_texts(small: StepProgram) -> None:
    check_steps(small)


@pytest.mark.long
def test_steps_on_the_reference() -> None:
    check_steps(make("reference", 7, 1))


@pytest.mark.long
def test_bits_depend_on_nobody_else(large: StepProgram, small: StepProgram) -> None:
    """Alone or among others, in other blocks and chunks, computed once or twice."""

    def run(program: StepProgram, texts: list[Text], piece: int) -> tuple[dict[Text, Any], int]:
        scheduler = Scheduler(program.pool, 8, 1, piece)
        return served(program, scheduler, texts), scheduler.preemptions

    def fresh() -> list[Text]:
        return [Text(list(prompt), len(prompt) + 9) for prompt in PROMPTS]

    together, _ = run(large, fresh(), 16)
    again, preemptions = run(small, fresh(), 4)
    assert preemptions > 0
    alone = [run(large, [text], 16)[0][text] for text in fresh()]
    for each in (together, again):
        for own, logprobs in zip(alone, each.values(), strict=True):
            np.testing.assert_array_equal(np.array(own), np.array(logprobs))


def test_other_settings_of_attention() -> None:
    """Learned positions, soft-caps, no rotary."""
    layers = (LayerConfig(),) * 2
    config = replace(CONFIG, layers=layers, positions="learned", attention_softcap=2.0)
    pool = BlockPool(20, 4)
    program = StepProgram(decoder(config), pool, 4, 1, 32, "reference")
    texts = [Text(list(prompt), len(prompt) + 3) for prompt in PROMPTS]
    check(program.model, served(program, Scheduler(pool, 4, 1, 4), texts))


@pytest.mark.long
def test_the_seed_alone_gives_a_text(large: StepProgram) -> None:
    """Whatever else runs, and whatever the program of its step could do besides; no compiles."""
    sampling = [
        Sampling(temperature=1.0, seed=1),
        Sampling(temperature=0.7, top_k=9, presence_penalty=0.5, seed=2),
        Sampling(),
        Sampling(temperature=1.3, min_p=0.01, logit_bias={3: 2.0}, seed=2**40),
    ]

    def run(numbers: Sequence[int]) -> dict[int, list[int]]:
        scheduler = Scheduler(large.pool, 8, 4, 4)
        texts = {Text(list(PROMPTS[k]), len(PROMPTS[k]) + 12): k for k in numbers}
        for text in texts:
            scheduler.add(text)
        while (step := scheduler.step()) is not None:
            draws = [
                Draw(sampling[texts[row.text]], row.text.tokens, row.text.prompt)
                for row in step.rows
            ]
            scheduler.done(step, large.run(step, draws, features_of(draws)).tokens.tolist())
        return {number: text.tokens for text, number in texts.items()}

    before = lm.compile_count()
    together = run(range(4))
    for number in range(4):
        assert run([number])[number] == together[number]
    assert together[0] != together[3]
    assert lm.compile_count() == before


def test_a_schema_alone_needs_no_penalties(
    large: StepProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its steps take half the time of those that could do everything."""
    ran: list[frozenset[str]] = []
    steps = {
        way: lambda *given, way=way, program=program, **named: (
            ran.append(frozenset(way)),
            program(*given, **named),
        )[1]
        for way, program in large._steps.items()
    }
    monkeypatch.setattr(large, "_steps", steps)
    scheduler = Scheduler(large.pool, 8, 4, 4)
    text = Text(list(PROMPTS[0]), len(PROMPTS[0]) + 3)
    scheduler.add(text)
    allowed = np.zeros(words_of(large.vocab_size), np.uint32)
    allowed[0] = 1 << 5
    while (step := scheduler.step()) is not None:
        draws = [Draw(Sampling(temperature=1.0), text.tokens, text.prompt, allowed)]
        scheduler.done(step, large.run(step, draws, features_of(draws)).tokens.tolist())
    assert text.tokens[text.prompt :] == [5] * 3
    assert {*ran} == {frozenset(("temperature", "allowed"))}


def test_pages_that_a_device_has_no_room_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is compiled; it is said what to lower."""

    def refused(device: Device, size: int) -> None:
        raise MemoryError(f"{device}: cannot allocate {size} bytes; 5 are free")

    monkeypatch.setattr(Device, "allocate", refused)
    before = lm.compile_count()
    with pytest.raises(
        InputError,
        match=r"of 160 tokens take 40960 bytes \(.* 5 are free\); give a smaller --cache",
    ):
        make("interpreted", 40, 4)
    assert lm.compile_count() == before
