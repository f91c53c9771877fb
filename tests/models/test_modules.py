"""Models as modules: pickled and jitted, as modules of layers are."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.hlir.printer import to_text
from luminal.models.architectures import read_decoder
from luminal.models.families import read_model
from tests.close import close
from tests.long_share import long_but, mostly_long
from tests.models import small_t5, small_vision, small_whisper, small_yolo
from tests.models.decoder_checks import saved, whole
from tests.models.small_models import VOCABULARY, llama
from tests.models.tiny_architectures import TINY, VARIANTS

NAMES = (*TINY, *VARIANTS)


def same_state(one: lm.nn.Module, other: lm.nn.Module) -> None:
    states = one.state_dict(), other.state_dict()
    assert states[0].keys() == states[1].keys()
    for key, array in states[0].items():
        np.testing.assert_array_equal(states[1][key], array, key)


@pytest.mark.parametrize("name", long_but(NAMES, NAMES[::12]))
def test_a_pickle_is_the_same_model(name: str, tmp_path: Path) -> None:
    saved(name, tmp_path)
    model = read_decoder(tmp_path)
    again = pickle.loads(pickle.dumps(model))
    assert to_text(whole(again).graph()) == to_text(whole(model).graph())
    same_state(model, again)


@pytest.mark.parametrize(
    "kind", mostly_long([small_t5, small_whisper, small_yolo, *small_vision.TINY], 4)
)
def test_pickles_of_other_families(kind: Any, tmp_path: Path) -> None:
    if isinstance(kind, str):
        small_vision.saved(kind, tmp_path)
    elif kind is small_whisper:
        kind.saved(tmp_path)
    else:
        kind.saved(next(iter(kind.KINDS)), tmp_path)
    model = read_model(tmp_path)
    again = pickle.loads(pickle.dumps(model))
    assert repr(again) == repr(model)
    same_state(model, again)


def test_jitted() -> None:
    """Numbers are inputs of what is jitted, so is the position of the first id."""
    model = llama()
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (3, 7)).astype(np.int32)
    wanted = whole(model).compile("reference")(ids=ids)["logits"]
    run = lm.jit(model)
    close(run(ids), wanted, ulp=8)
    close(run(ids, positions=0), wanted, ulp=8)
    np.testing.assert_allclose(run(ids, None, 5), wanted, rtol=1e-4, atol=1e-4)  # turned alike
    each = np.broadcast_to(np.arange(7, dtype=np.int32), ids.shape)
    close(run(ids, positions=each), wanted, ulp=8)
    assert run.entries == 2
