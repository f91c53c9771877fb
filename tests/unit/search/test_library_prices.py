"""What a library would gain or lose is said of kernels that were timed both ways, of no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import luminal as lm
from luminal.backends.cuda.backend import named
from luminal.base import config
from luminal.search import database
from luminal.search.explain import explain
from luminal.search.genome import Genome, called_by, library_of
from luminal.search.library_prices import Timed
from luminal.search.measure import price_key
from luminal.search.search import context_of
from luminal.search.space import Space

CHIP = named("sm_90a")
BACKEND = replace(CHIP, target=replace(CHIP.target, libraries=("cublaslt",)))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[None]:
    with config.override(LUMINAL_CACHE_DIR=tmp_path):
        yield


def product() -> lm.Graph:
    cx = lm.Graph()
    x, w = cx.tensor((cx.dim("s", 1, 64), 16), name="x"), cx.tensor((16, 16), name="w")
    (x @ w).output("y")
    return cx


def timed(space: Space, seconds: dict[str, float]) -> None:
    """Puts prices into the database, of our own kernel ("") and of algorithms by their numbers."""
    (origin,) = space.decode(Genome()).stages.origins
    dims, prices = {"s": 64}, {}
    for key, taken in seconds.items():
        number = (("algorithm", int(key)),) if key not in ("", "0") else ()
        knobs = called_by("cublaslt", number) if key else ()
        variant = space.decode(Genome().with_tuned({origin.name: knobs}))
        prices[price_key(variant, 0, dims, context_of(BACKEND, dims))] = taken
    database.default().add_prices(prices)


def said() -> list[str]:
    lines = explain(product().graph(), BACKEND).splitlines()
    return [line for line in lines if "cublaslt" in line]


@pytest.mark.long
def test_what_searches_have_timed_is_said() -> None:
    space = Space(product().graph(), BACKEND)
    assert said() == []
    timed(space, {"": 30e-6})
    assert said() == []
    timed(space, {"0": 25e-6, "5": 20e-6})
    assert said() == ["Contract: cublaslt 20 us, our own kernel 30 us (1.50x by it)"]


def test_the_fastest_of_either_counts() -> None:
    space = Space(product().graph(), BACKEND)
    candidate = space.decode(Genome())
    (origin,) = candidate.stages.origins
    prices = Timed()
    own = (("deep", 2),)
    for knobs, seconds in ((own, 3.0), ((), 4.0), (called_by("cublaslt"), 6.0)):
        prices.note(origin.name, knobs, seconds)
    (row,) = prices.rows(candidate)
    assert (row.library, row.seconds, row.own_seconds) == ("cublaslt", 6.0, 3.0)
    assert str(row).endswith("(0.50x by it)")


def test_knobs_say_which_library() -> None:
    assert library_of(called_by("blas", (("algorithm", 1),))) == "blas"
    assert library_of((("deep", 2),)) is None
