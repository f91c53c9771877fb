"""Steps of a paged cache against the same decoder without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.models.decoder import Decoder, DecoderConfig, LayerConfig, Rotary
from luminal.serve.blocks import BlockPool
from luminal.serve.program import StepProgram
from luminal.serve.scheduler import Scheduler, Step, Text

CONFIG = DecoderConfig(
    vocab_size=50,
    hidden_size=32,
    intermediate_size=48,
    layers=tuple(LayerConfig(window, Rotary()) for window in (None, 5)),
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=128,
)
PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [9], [8, 7, 6, 5, 4, 3, 2, 1, 9, 10, 11], [1, 2, 3, 4, 5, 6, 7]]


def decoder(config: DecoderConfig = CONFIG) -> Decoder:
    """With random weights."""
    lm.manual_seed(3)
    return Decoder(config)


def plain(model: Decoder) -> Any:
    """Logits of whole texts, without a cache."""
    graph = lm.Graph()
    ids = graph.tensor((graph.dim("s", 1, 128),), dtype=lm.int32, name="ids")
    model(ids).output("logits")
    compiled = graph.compile(backend="reference")
    return lambda tokens: compiled({"ids": np.array(tokens, np.int32)})["logits"]


def served(program: StepProgram, scheduler: Scheduler, texts: Sequence[Text]) -> dict[Text, Any]:
    """Runs texts to their ends, greedily; the logits that chose each new token."""
    found: dict[Text, list[Any]] = {text: [] for text in texts}
    for text in texts:
        scheduler.add(text)
    while (step := scheduler.step()) is not None:
        logits = program.run(step)
        for row, each in zip(step.rows, logits, strict=True):
            if row.last:
                found[row.text].append(each.copy())
        scheduler.done(step, logits.argmax(-1).tolist())
    return found


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_steps_give_the_logits_of_whole_texts(backend: str) -> None:
    """Mixed steps, chunks, shared and copied blocks, texts that are computed again."""
    model = decoder()
    pool = BlockPool(7, 4)
    program = StepProgram(model, pool, max_rows=3, chunk=4, context=32, backend=backend)
    scheduler = Scheduler(pool, max_rows=3, chunk=4)
    texts = [Text(list(prompt), len(prompt) + 6) for prompt in PROMPTS]
    texts.append(Text(list(PROMPTS[3]), 12, sibling=texts[3]))
    found = served(program, scheduler, texts)
    assert scheduler.preemptions > 0
    assert max(text.cached for text in texts) > 4
    whole = plain(model)
    for text, logits in found.items():
        expected = whole(text.tokens)[text.prompt - 1 : -1]
        np.testing.assert_allclose(np.array(logits), expected, rtol=1e-4, atol=1e-5)


def test_bits_depend_on_nobody_else() -> None:
    """Alone or among others, in other blocks and chunks, computed once or twice."""
    model = decoder()

    def run(texts: list[Text], blocks: int, chunk: int) -> tuple[dict[Text, Any], Scheduler]:
        pool = BlockPool(blocks, 4)
        program = StepProgram(model, pool, max_rows=8, chunk=chunk, context=32)
        scheduler = Scheduler(pool, max_rows=8, chunk=chunk)
        return served(program, scheduler, texts), scheduler

    def fresh() -> list[Text]:
        return [Text(list(prompt), len(prompt) + 9) for prompt in PROMPTS]

    alone = [next(iter(run([text], 40, 16)[0].values())) for text in fresh()]
    for blocks, chunk in ((40, 16), (7, 4)):
        found, scheduler = run(fresh(), blocks, chunk)
        for own, logits in zip(alone, found.values(), strict=True):
            np.testing.assert_array_equal(np.array(own), np.array(logits))
    assert scheduler.preemptions > 0


def test_nothing_compiles_while_it_serves() -> None:
    pool = BlockPool(32, 4)
    program = StepProgram(decoder(), pool, max_rows=4, chunk=8, context=32)
    before = lm.compile_count()
    served(program, Scheduler(pool, 4, 8), [Text([k], 3 * k + 2) for k in range(9)])
    assert lm.compile_count() == before


def test_other_settings_of_attention() -> None:
    """Learned positions, soft-caps, no rotary."""
    model = decoder(
        replace(CONFIG, layers=(LayerConfig(),) * 2, positions="learned", attention_softcap=2.0)
    )
    pool = BlockPool(20, 4)
    program = StepProgram(model, pool, 4, 4, 32, "reference")
    texts = [Text(list(prompt), len(prompt) + 3) for prompt in PROMPTS]
    whole = plain(model)
    for text, logits in served(program, Scheduler(pool, 4, 4), texts).items():
        expected = whole(text.tokens)[text.prompt - 1 : -1]
        np.testing.assert_allclose(np.array(logits), expected, rtol=1e-4, atol=1e-5)
