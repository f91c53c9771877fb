"""Beam search against transformers', token for token."""

from __future__ import annotations

import pytest

import luminal as lm
from luminal.models.beam import beam_search
from tests.models.small_models import language_model, llama, twin


@pytest.mark.parametrize(
    ("width", "room", "penalty", "scale"),
    [
        (1, 6, 1.0, 0.2),
        (3, 5, 1.0, 0.2),
        pytest.param(3, 12, 1.0, 0.2, marks=pytest.mark.long),
        pytest.param(4, 16, 0.0, 0.1, marks=pytest.mark.long),
        pytest.param(2, 20, 2.0, 0.1, marks=pytest.mark.long),
        pytest.param(5, 9, -1.0, 0.1, marks=pytest.mark.long),
    ],
)
def test_beams_are_those_of_transformers(
    width: int, room: int, penalty: float, scale: float
) -> None:
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("transformers")
    made = llama(3, scale=scale)
    ours, theirs = language_model(made), twin(made)
    for prompt in ("EFG", "7"):
        found = beam_search(ours, prompt, width, room, penalty)
        expected = theirs.generate(
            torch.tensor([ours.encode(prompt)]),
            num_beams=width,
            num_return_sequences=width,
            max_new_tokens=room,
            do_sample=False,
            length_penalty=penalty,
            output_scores=True,
            return_dict_in_generate=True,
        )
        wanted = [tuple(row[len(prompt) :]) for row in expected.sequences.tolist()]
        padded = [beam.tokens + (0,) * (len(wanted[0]) - len(beam.tokens)) for beam in found]
        assert padded == wanted
        if width > 1:
            scores = expected.sequences_scores.tolist()
            assert [beam.score for beam in found] == pytest.approx(scores, abs=1e-4)


def test_beams_end_at_end_tokens() -> None:
    found = beam_search(language_model(llama(3, scale=0.02)), "AB", 3, 12)
    assert {beam.tokens[-1] for beam in found if len(beam.tokens) < 12} <= {0}
    for beam in found:
        assert len(beam.text) == len([token for token in beam.tokens if token])


def test_a_width_beyond_what_is_ranked_is_refused() -> None:
    with pytest.raises(lm.InputError, match="width: 11 beams and 1 end tokens need 22 ranked"):
        beam_search(language_model(), "A", 11)
