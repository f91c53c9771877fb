"""Models trained for some steps by ranks on devices over stand-ins: run by test_device_models.py
in a process that finds them, which says in ASKED what to train, as "2 llama:zero1 ...".
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import luminal as lm
from luminal.runtime.collectives.engine import Engine
from luminal.runtime.collectives.local import run_local
from tests.distributed.cards import CARDS
from tests.distributed.carried_by_host import carry
from tests.distributed.mesh_models import steps

ranks, *models = os.environ["ASKED"].split()
RANKS = int(ranks)
NEAR = 2e-4
"""Three steps of float32, whose sums are added in other orders; Adam divides by small moments."""


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    with CARDS.compiler_stands_in(monkeypatch, tmp_path, LUMINAL_POISON=None):
        yield
    CARDS.driver.stand_in_hurry(0)


def trained(
    asked: str, on: str = "", collectives: Literal["tree", "engine"] = "tree"
) -> dict[str, Any]:
    """What training gives, on devices of the stand-in or on another one; the same on all ranks."""
    name, plan = asked.split(":")

    def work(engine: Engine) -> dict[str, Any]:
        with lm.device(on or CARDS.name(engine.rank)):
            return steps(name, plan, engine.size, collectives)

    first, *others = run_local(RANKS, work)
    for other in others:
        check_bits(other, first)
    return first


def check_bits(values: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raises AssertionError where two trainings are not the same bit for bit."""
    assert values.keys() == wanted.keys()
    for name, value in values.items():
        assert value.tobytes() == wanted[name].tobytes(), name


@functools.cache
def late(asked: str) -> dict[str, Any]:
    """What comes of collectives that begin no sooner than somebody waits for them."""
    return trained(asked)


@pytest.mark.parametrize("asked", models)
def test_values_are_the_oracles(asked: str) -> None:
    near(late(asked), trained(asked, "reference"))


@pytest.mark.parametrize("asked", models)
def test_bits_are_those_of_a_host_that_does_one_thing_after_the_other(
    monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    wanted = late(asked)
    carry(monkeypatch, RANKS)
    check_bits(trained(asked), wanted)


@pytest.mark.parametrize("asked", models)
def test_bits_are_the_same_where_collectives_begin_at_once(asked: str) -> None:
    wanted = late(asked)
    CARDS.driver.stand_in_hurry(1)
    check_bits(trained(asked), wanted)


@pytest.mark.parametrize("asked", models)
def test_the_library_may_add_in_another_order(asked: str) -> None:
    own = trained(asked, collectives="engine")
    # Two ranks have but one order.
    check_bits(own, late(asked)) if RANKS == 2 else near(own, late(asked))


def near(values: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raises AssertionError where two trainings differ by more than rounding."""
    assert values.keys() == wanted.keys()
    for name, value in values.items():
        np.testing.assert_allclose(value, wanted[name], rtol=NEAR, atol=NEAR, err_msg=name)
