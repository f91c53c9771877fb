"""Beam search against transformers', token for token."""

from __future__ import annotations

from typing import Any

import pytest

import luminal as lm
from luminal.models.beam import beam_search
from tests.models.small_models import language_model, llama, twin


@pytest.mark.parametrize(
    ("width", "room", "penalty", "ends"),
    [
        pytest.param(1, 6, 1.0, {0}, marks=pytest.mark.long),
        (3, 7, 1.0, {0, 7, 21, 33}),
        pytest.param(3, 12, 1.0, {0}, marks=pytest.mark.long),
        pytest.param(4, 16, 0.0, {0, 5, 40}, marks=pytest.mark.long),
        pytest.param(2, 20, 2.0, {0, 3, 9, 30, 31, 50}, marks=pytest.mark.long),
        pytest.param(5, 9, -1.0, {0, 7, 21}, marks=pytest.mark.long),
    ],
    ids=["greedy", "many_ends", "one_end", "sums", "long_texts", "short_texts"],
)
def test_beams_are_those_of_transformers(
    width: int, room: int, penalty: float, ends: set[int]
) -> None:
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("transformers")
    made = llama(3, scale=0.1)
    ours, theirs = language_model(made), twin(made)
    ours.tokenizer.eos_ids = frozenset(ends)  # type: ignore[misc]
    for prompt in ("EFG", "7", "ZZ"):
        found = beam_search(ours, prompt, width, room, penalty)
        expected = theirs.generate(
            torch.tensor([ours.encode(prompt)]),
            num_beams=width,
            num_return_sequences=width,
            max_new_tokens=room,
            do_sample=False,
            length_penalty=penalty,
            eos_token_id=sorted(ends),
            output_scores=True,
            return_dict_in_generate=True,
        )
        wanted = [tuple(row[len(prompt) :]) for row in expected.sequences.tolist()]
        padded = [beam.tokens + (0,) * (len(wanted[0]) - len(beam.tokens)) for beam in found]
        assert padded == wanted
        if width > 1:
            scores = expected.sequences_scores.tolist()
            # sums of logarithms over a text, which the networks compute in other orders
            assert [beam.score for beam in found] == pytest.approx(scores, abs=1e-4)


def test_beams_end_at_end_tokens() -> None:
    found = beam_search(language_model(llama(3, scale=0.02)), "AB", 3, 12)
    assert {beam.tokens[-1] for beam in found if len(beam.tokens) < 12} <= {0}
    for beam in found:
        assert len(beam.text) == len([token for token in beam.tokens if token])


def test_a_width_beyond_what_is_ranked_is_refused() -> None:
    with pytest.raises(lm.InputError, match="width: 11 beams and 1 end tokens need 22 ranked"):
        beam_search(language_model(), "A", 11)


@pytest.mark.parametrize("penalty", [float("nan"), 1000, -(10**400), "1", True], ids=str)
def test_a_penalty_that_is_none(penalty: Any) -> None:
    with pytest.raises(lm.InputError, match=r"length_penalty: .* is no number from -32 to 32"):
        beam_search(language_model(), "EFG", length_penalty=penalty)
