"""Scatters on the CPU: in the order of the reference, whatever the threads, chunks and lanes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import luminal as lm
from luminal.algebra import reductions
from luminal.algebra.lower import lower
from luminal.algebra.terms import Axes, Term
from luminal.backends import reference
from luminal.backends.cpu import device
from luminal.backends.cpu.backend import current
from luminal.base import config
from luminal.base.numerics import Numerics
from luminal.program import partition
from luminal.schedule.vectors import costs
from luminal.selection import private_sums
from luminal.selection.fast import respell
from luminal.shape.expression import Expression
from tests.backends.cpu.selection.scatter_results import Array, results
from tests.fuzz.cpu_run import cut_small
from tests.fuzz.genome_checks import check_genomes
from tests.fuzz.graphs import Case
from tests.fuzz.scatters import random_scatter
from tests.machines import NARROWER


@pytest.fixture(autouse=True)
def _team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "TEAM_GAIN", -math.inf)  # even for tiny programs


def plain(array: Array) -> Array:
    """NumPy knows no NaN of dtypes that are not its own."""
    return array.astype(np.float64) if array.dtype == lm.bfloat16.numpy else array


# --- random maps


def check_seeds(seeds: range, *, whole: bool) -> None:
    for seed in seeds:
        case = random_scatter(seed, whole=whole)
        expected = reference.evaluate(case.graph, case.inputs, case.dims)["y"]
        for found in results(case):
            np.testing.assert_array_equal(plain(found), plain(expected), f"seed {seed}")


def in_order(patch: pytest.MonkeyPatch) -> None:
    cut_small(patch)
    patch.setattr(costs, "SHARES", replace(costs.SHARES, scattered=0))


def has_parts(seed: int) -> bool:
    lowered = lower(random_scatter(seed, whole=True).graph)
    order = respell(lowered, current().costs, Numerics.STANDARD).order()
    return any(term.op == "Scatter" and len(term.args[0].axes) == 0 for term in order)


@pytest.mark.parametrize("machine", ["native", NARROWER])
def test_elements_meet_in_the_order_of_the_reference(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_order(monkeypatch)
    with config.override(LUMINAL_TARGET=machine):
        check_seeds(range(15) if machine == "native" else range(50, 57), whole=False)


def test_private_sums_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whole numbers, whose sums are exact in any order."""
    cut_small(monkeypatch)
    check_seeds(range(100, 125), whole=True)
    assert sum(map(has_parts, range(100, 125))) > 2


def test_private_sums_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside each other and Sorts, one of what another one gave."""
    cut_small(monkeypatch)
    cx = lm.Graph()
    at, x = cx.tensor((100,), lm.int64, name="at"), cx.tensor((100,), lm.int32, name="x")
    first = cx.zeros((5,), dtype=lm.int32).scatter_add(0, at, x)
    second = first.scatter_add(0, 4 - at, x.sort()[0] * 3)
    third = at.bincount(size=5).int()
    lm.cat([first, second, second.sort()[0], third, third.sort()[0]]).output("y")
    arrays = np.random.default_rng(0)
    given = {"at": arrays.integers(0, 5, 100), "x": arrays.integers(-9, 9, 100).astype(np.int32)}
    case = Case(cx.graph(), given, {}, {})
    expected = reference.evaluate(case.graph, given)["y"]
    for found in results(case):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(10))
def test_many_maps(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = range(100 + 100 * chunk, 200 + 100 * chunk)
    with monkeypatch.context() as patch:
        in_order(patch)
        check_seeds(seeds, whole=False)
    cut_small(monkeypatch)
    check_seeds(seeds, whole=True)


def all_free(term: Term) -> Axes:
    return ()


def turned(term: Term) -> Axes:
    """Free axes are taken for those that meet, and the other way round."""
    axes = [axis for dimension in term.attrs.frames[1] for axis in dimension]
    return tuple(axis for axis in axes if axis not in private_sums.ordered_axes(term))


@pytest.mark.parametrize("wrong", [all_free, turned], ids=lambda wrong: wrong.__name__)
def test_a_wrong_order_is_found(
    wrong: Callable[[Term], Axes], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_order(monkeypatch)
    monkeypatch.setattr(partition, "ordered_axes", wrong)
    with pytest.raises(AssertionError, match="seed"):
        check_seeds(range(25), whole=False)


def test_a_lost_part_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounded_down(extent: Expression, size: int) -> Expression:
        return extent // size

    cut_small(monkeypatch)
    monkeypatch.setattr(reductions, "ceil_div", rounded_down)
    with pytest.raises(AssertionError, match="seed"):
        check_seeds(range(100, 150), whole=True)


def test_every_candidate_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Private sums are one spelling of a Scatter among others, of a dim too."""
    cut_small(monkeypatch)
    cx = lm.Graph()
    s = cx.dim("s", 1, 200)
    at, x = cx.tensor((s,), lm.int64, name="at"), cx.tensor((s,), name="x")
    y = cx.tensor((7,), name="t").scatter_add(0, at, x * 2)
    (y / (1 + at.bincount(size=7))).output("z")
    y.softmax(-1).output("y")
    rng = np.random.default_rng(0)
    cases = []
    for n in (5, 200, 64):
        given = {
            "at": rng.integers(0, 7, n),
            "x": rng.normal(size=n).astype(np.float32),
            "t": rng.normal(size=7).astype(np.float32),
        }
        cases.append(Case(cx.graph(), given, {"s": n}, {}))
    check_genomes(cases, 3, 3)
