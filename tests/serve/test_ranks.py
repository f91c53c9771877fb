"""A step on several ranks, that are threads here, against the same step of one process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from luminal.base.errors import InputError
from luminal.models.decoder import Decoder
from luminal.models.sampling import Draw, Sampling
from luminal.runtime.collectives.engine import Deadlines
from luminal.runtime.collectives.local import World, run_local
from luminal.serve import program, scheduler
from luminal.serve.blocks import BlockPool
from luminal.serve.program import Choices, StepProgram
from luminal.serve.ranks import ALONE, Ranks, Together
from tests.close import close
from tests.serve.small_decoder import CONFIG, decoder

WAY = ("temperature", "allowed", "top_logprobs")
ALLOWED = np.full(2, 0x5555_5555, np.uint32)  # even ids


def steps(ranks: Ranks, way: tuple[str, ...]) -> list[Choices]:
    """What a prompt and eight tokens after it choose: of three texts, one greedy, one drawn and one
    that may have even ids only.
    """
    model, pool = decoder(replace(CONFIG, layers=CONFIG.layers[:1])), BlockPool(32, 4)
    ranks.cut(model)
    run = StepProgram(model, pool, 4, 2, 64, "cpu" if way else "reference", ranks=ranks)
    if isinstance(ranks, Together):
        if not ranks.is_first:
            ranks.follow()
            return []
        ranks.lead()
    plan = scheduler.Scheduler(pool, 4, 2)
    plain: tuple[Sampling, Any] = Sampling(), None
    kinds = [plain, (Sampling(temperature=0.9, seed=7), None), (Sampling(), ALLOWED)]
    kinds = kinds if way else [plain] * 3
    draws = {}
    for number, (sampling, allowed) in enumerate(kinds):
        text = scheduler.Text([*range(3 + number, 21)], 27)
        plan.add(text)
        draws[text] = sampling, allowed
    chosen = []
    while (step := plan.step()) is not None:
        rows = [
            Draw(draws[row.text][0], row.text.tokens, row.text.prompt, draws[row.text][1])
            for row in step.rows
        ]
        chosen.append(run.run(step, rows, way))
        plan.done(step, chosen[-1].tokens.tolist())
    if isinstance(ranks, Together):
        ranks.end()
    return chosen


@pytest.mark.parametrize("way", [(), pytest.param(WAY, marks=pytest.mark.long)], ids=len)
def test_ranks_choose_what_one_chooses(
    way: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy, drawn and constrained; log-probabilities as near as sums in another order are."""
    monkeypatch.setattr(program, "WAYS", (way,))
    monkeypatch.setattr("luminal.serve.ranks.BEAT_SECONDS", 0.02)  # beats come between steps
    alone = steps(ALONE, way)
    together, others = run_local(2, lambda engine: steps(Together(engine), way))
    assert others == []
    assert len(together) == len(alone) > 8
    for one, two in zip(alone, together, strict=True):
        assert one.tokens.tolist() == two.tokens.tolist()
        if not way:
            continue
        assert one.logprobs is not None
        assert two.logprobs is not None
        close(two.logprobs, one.logprobs, ulp=16)  # of sums of 32 terms, in another order


def together(ranks: int) -> Together:
    return Together(World(ranks, Deadlines()).engine(0))


@pytest.mark.parametrize(
    ("ranks", "changed", "message"),
    [
        (3, {}, "--tensor 3: the model has 4 attention heads, .*; give a number that divides 4"),
        (4, {}, "--tensor 4: the model has 2 key-value heads, and each rank takes equally many "),
        (2, {"intermediate_size": 47}, "--tensor 2: model.layers.0.mlp.* does not divide into 2"),
    ],
)
def test_what_ranks_cannot_share(ranks: int, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        together(ranks).cut(Decoder(replace(CONFIG, **changed)))
