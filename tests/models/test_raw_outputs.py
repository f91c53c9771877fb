"""`model(ids)`: logits, hidden states and attention weights are those of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.models.architectures import read_decoder
from luminal.models.generate import LanguageModel
from tests.close import close_to_greatest
from tests.models.decoder_checks import saved, torch
from tests.models.small_models import Letters
from tests.models.tiny_architectures import TINY, VOCABULARY

IDS = np.random.default_rng(0).integers(0, VOCABULARY, (3, 9))


def opened(name: str, folder: Path, backend: str) -> tuple[Any, LanguageModel]:
    """The model of transformers, with attention in the open, and ours."""
    theirs = saved(name, folder)
    theirs.set_attn_implementation("eager")
    return theirs, LanguageModel(read_decoder(folder), Letters(), backend=backend)


def check(name: str, folder: Path, backend: str) -> None:
    """All three, for a batch."""
    theirs, model = opened(name, folder, backend)
    with torch.no_grad():
        wanted = theirs(
            torch.from_numpy(IDS),
            output_hidden_states=True,
            output_attentions=True,
            use_cache=False,
        )
    found: Any = model(IDS, hidden_states=True, attentions=True)
    close_to_greatest(found.logits, wanted.logits.numpy())
    assert len(found.hidden_states) == len(wanted.hidden_states)
    for ours, states in zip(found.hidden_states, wanted.hidden_states, strict=True):
        close_to_greatest(ours, states.numpy())
    given = [weights for weights in wanted.attentions if weights is not None]
    held = [weights for weights in found.attentions if weights is not None]
    assert len(held) == len(given)
    for ours, weights in zip(held, given, strict=True):
        close_to_greatest(ours, weights.numpy())


@pytest.mark.parametrize(
    "name",
    ["llama", *(pytest.param(n, marks=pytest.mark.long) for n in ("gemma2", "gpt_oss", "gpt2"))],
)
def test_all_that_is_computed(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, "reference")


@pytest.mark.long
@pytest.mark.parametrize("name", ["llama", "qwen3", "bloom", "qwen3_next", "deepseek_v2"])
def test_all_that_is_compiled(name: str, tmp_path: Path) -> None:
    assert name in TINY
    check(name, tmp_path, "cpu")


def test_logits_alone(tmp_path: Path) -> None:
    _, model = opened("llama", tmp_path, "reference")
    logits: Any = model(IDS)
    assert logits.shape == (3, 9, VOCABULARY)
    assert logits.dtype == np.float32
    many: Any = model(np.repeat(IDS, 6, 0))  # more than a run takes
    np.testing.assert_array_equal(many[-1], logits[-1])
    np.testing.assert_array_equal(model([*map(int, IDS[1])]), logits[1:2])
    assert model.model.model.layers[0].self_attn.seen is None
    only: Any = model(IDS, hidden_states=True)
    assert (len(only.hidden_states), only.attentions) == (3, ())


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ("abc", r"ids are <U3 of shape \(\); give integers \(batch, length\)"),
        ([[1.5]], r"ids are float64 of shape \(1, 1\)"),
        ([], r"ids are float64 of shape \(1, 0\)"),
        ([[1, 2], [1]], "rows of ids have different lengths; pad shorter ones on the right"),
        ([1, 64], "id 64 is not among the 64 of the vocabulary"),
        ([-1, 3], "id -1 is not among"),
        ([1] * 65, "65 ids, but the context is 64"),
    ],
    ids=["text", "floats", "none", "ragged", "large", "negative", "long"],
)
def test_what_are_no_ids(ids: Any, message: str, tmp_path: Path) -> None:
    _, model = opened("llama", tmp_path, "reference")
    with pytest.raises(lm.InputError, match=message):
        model(ids)
