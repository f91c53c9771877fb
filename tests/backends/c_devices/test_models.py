"""Whole models on each device that is here: digits, stories, 32 layers, and a search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import luminal as lm
from luminal.base import config
from luminal.models import load
from tests.backends.c_family.present import present
from tests.close import close
from tests.models.digits import check_digits
from tests.models.layered_llama import decode, llama
from tests.models.stories import PROMPT

pytestmark = pytest.mark.parametrize("name", present())


@pytest.mark.long
def test_digits(name: str, shared_data: Path) -> None:
    check_digits(shared_data, name, 10000)


@pytest.mark.long
def test_a_story_is_the_cpus(name: str, shared_data: Path) -> None:
    texts = [
        load(shared_data / "tinystories-656k", backend=backend, context=256).generate(PROMPT, 200)
        for backend in ("cpu", name)
    ]
    assert len(texts[0]) > 500
    assert texts[0] == texts[1]


@pytest.mark.parametrize("layers", [3, pytest.param(32, marks=pytest.mark.long)])
def test_layers_in_a_loop_with_caches(name: str, layers: int) -> None:
    model = llama(layers)
    ours, reference = (decode(model).compile(backend) for backend in (name, "reference"))
    for past in range(5):
        ids = np.array([past * 7 % 64])
        found, expected = (exe(ids=ids, dims={"past": past})["logits"] for exe in (ours, reference))
        close(found, expected)


@pytest.mark.long
def test_a_searched_program_differs_and_is_right(name: str, tmp_path: Path) -> None:
    cx = lm.Graph()
    x, w = cx.tensor((64, 96), name="x"), cx.weight((96, 80), name="w")
    (x @ w).gelu().softmax(-1).output("y")
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal(value.shape, np.float32) for name, value in
             (("x", np.zeros((64, 96))), ("w", np.zeros((96, 80))))}  # fmt: skip
    options = lm.SearchOptions(max_candidates=12, stop_below_us=0)
    with config.override(LUMINAL_CACHE_DIR=tmp_path):
        fast = lm.compile(cx, backend=name)
        best = lm.compile(cx, backend=name, mode="optimal", search=options)
        found = best.report().search
    assert found is not None
    assert found.fast_seconds >= found.best_seconds > 0
    # a search may choose any order of sums
    np.testing.assert_allclose(best(given)["y"], fast(given)["y"], rtol=1e-4, atol=1e-6)
