"""`python -m bench fuzz`: what it draws, what it calls wrong, and its command."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from bench.fuzz import command, draft, measure, others
from bench.fuzz.case import Case, flat, parsed
from bench.fuzz.draft import LAYOUTS, Draft
from bench.fuzz.draw import FAMILIES, drawn, drawn_of
from bench.fuzz.kinds import report
from bench.fuzz.measure import Outcome
from bench.fuzz.operations import OPERATIONS, Operation
from bench.fuzz.values import Expected, difference
from tests.long_share import long_but


def test_a_seed_draws_the_same_cases_and_their_texts_say_all() -> None:
    for number in range(150):
        case = drawn(3, number)
        assert case == drawn(3, number)
        kind = {name: getattr(case, name) for name in ("id", "family", "layout", "way")}
        assert replace(parsed(str(case)), **kind) == case


def test_a_text_that_cannot_be_read_is_told_from_where() -> None:
    with pytest.raises(ValueError, match="cannot be read at 'y: f33"):
        parsed("x: f32[3], y: f33[4] -> x + y")


def test_every_family_and_layout_is_drawn() -> None:
    cases = [drawn(5, number) for number in range(500)]
    assert {case.family for case in cases} == set(FAMILIES)
    assert {case.layout for case in cases} == set(LAYOUTS)


def test_a_layout_has_the_shape_that_was_asked_for() -> None:
    for layout in LAYOUTS:
        for seed in range(20):
            sketch = Draft(np.random.default_rng(seed))
            shape = draft.drawn_shape(sketch, 1 + seed % 5, 200)
            (seen,) = sketch.meta(sketch.laid_out(layout, "f32", shape))
            assert tuple(seen.shape) == shape


@pytest.mark.parametrize(
    "operation",
    long_but(OPERATIONS, OPERATIONS[::5]),
    ids=lambda each: f"{each.family} {each.text}",
)
def test_both_libraries_read_every_operation(operation: Operation) -> None:
    """On the reference backend, so that nothing is compiled."""
    rng, small = np.random.default_rng(7), replace(operation, most=200)
    attempts = (drawn_of(small, rng) for _ in range(400))
    case = next(each for each in attempts if each is not None and not each.gradients)
    with torch.inference_mode(False):
        sides = measure._sides(case)
        expected = measure._expected(case, sides)
    results = lm.compile(case.graph(()), backend="reference")(case.arrays())
    assert not difference([np.array(each) for each in results.values()], expected)


def _expected(*results: torch.Tensor) -> Expected:
    return Expected(results, results, results)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (np.float32([1, 2]), torch.tensor([1.0, 2.0]), ""),
        (np.float32([1, 2.1]), torch.tensor([1.0, 2.0]), "1 of 2 wrong; 2.0999.* at (1,), not 2.0"),
        (np.float32([1, np.nan]), torch.tensor([1.0, 2.0]), "1 of 2 wrong; nan at (1,), not 2.0"),
        (np.float32([1, np.inf]), torch.tensor([1.0, np.inf]), ""),
        (np.int64([3]), torch.tensor([4]), "1 of 1 wrong; 3 at (0,), not 4"),
        (np.float32([1]), torch.tensor([1.0, 2.0]), "shape (1,); PyTorch's is (2,)"),
        (np.float64([1]), torch.tensor([1.0]), "dtype float64; PyTorch's is torch.float32"),
    ],
)
def test_what_is_wrong_is_said(ours: Any, theirs: torch.Tensor, said: str) -> None:
    found = difference([ours], _expected(theirs))
    if "*" in said:
        start, end = said.split(".*")
        assert found.startswith(f"result 0: {start}")
        assert found.endswith(end)
    else:
        assert found == (f"result 0: {said}" if said else "")


def test_rounding_is_not_called_wrong() -> None:
    """A sum that nearly cancels is as far off as its terms make it."""
    case = parsed("x: f32[200000] -> (x - x.mean()).sum()")
    assert not measure.run(case, timed=False).wrong


def test_what_steps_between_may_round_counts_where_inputs_cancel() -> None:
    """A sum of differences is one difference of inputs; its terms are many."""
    case = parsed("x: f32[200001] -> x.diff(dim=0).sum()")
    expected = measure._expected(case, measure._sides(case))
    assert abs(float(expected.moved[0] - expected.exact[0])) > 1e-3


def test_what_is_an_inputs_own_memory_is_not_drawn() -> None:
    """PyTorch hands out the input where a cast changes nothing, in no time."""
    cast = Operation("cast", "{x}.float()", types="any")
    rng = np.random.default_rng(1)
    drawn_types = {case.type for _ in range(300) if (case := drawn_of(cast, rng)) is not None}
    assert "f64" in drawn_types
    assert "f32" not in drawn_types


def test_a_wrong_value_ends_with_status_1_and_cases_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cases.json"
    arguments = ["--seed", "8", "--untimed", "--json", str(file)]
    monkeypatch.setattr(command, "drawn", lambda seed, number: _small(f"{seed}:{number}"))
    assert command.main([*arguments, "--cases", "2"]) == 0
    real = Case.graph

    def planted(self: Case, upstream: tuple[int, ...]) -> lm.Graph:
        return real(replace(self, expression="x * 2.001"), upstream)

    monkeypatch.setattr(Case, "graph", planted)
    assert command.main([*arguments, "--cases", "3"]) == 1
    assert [json.loads(line)["id"] for line in file.read_text().splitlines()] == [
        "8:0", "8:1", "8:2",
    ]  # fmt: skip
    said = capsys.readouterr()
    assert "WRONG 8:2  --case 'x: f32[3] -> x * 2'" in said.out
    assert "3 cases, 1 wrong" in said.out


def _small(name: str) -> Case:
    return replace(parsed("x: f32[3] -> x * 2"), id=name)


def test_kinds_are_told_by_their_means_and_worst() -> None:
    case = replace(_small("1:1"), family="pointwise", layout="plain", way="single")

    def outcome(eager: float, ours: float) -> Outcome:
        seconds = MappingProxyType({"eager": eager, "ours": ours})
        return Outcome(case, seconds=seconds, elements=200)

    text = report([outcome(4e-4, 1e-4), outcome(1e-4, 4e-4), outcome(2e-6, 2e-6)])
    assert "pointwise x plain x to 10^4      3  1.00    33%    33%   0.25   1:1" in text
    assert "0.25     400.0 us, eager     100.0  1:1  --case 'x: f32[3] -> x * 2'" in text
    assert "33.3% below 1.0, 33.3% below 0.5, the least 0.25" in text
    assert "of 2 where eager takes 50 us: 1 below 0.6, least 0.25" in text


def test_what_others_take_is_told_from_what_we_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In two seconds all cores are busy for 3, and this process had 1 of them."""
    tick = os.sysconf("SC_CLK_TCK")
    file, clock, own = tmp_path / "stat", iter((10.0, 12.0)), iter((5.0, 6.0))
    monkeypatch.setattr(others, "STATISTICS", file)
    monkeypatch.setattr(others.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(others.time, "process_time", lambda: next(own))
    file.write_text(f"cpu  {tick} 0 {tick} {5 * tick} 0 0 0 0 0 0\ncpu0 0 0\n")
    began = others.Others()
    file.write_text(f"cpu  {3 * tick} 0 {tick} {9 * tick} {tick} 0 0 {tick} 7 7\ncpu0 0 0\n")
    assert began.cores() == pytest.approx(1.0)


def test_a_case_beside_others_has_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MOST_OTHERS", -1)
    monkeypatch.setattr(measure, "TRIES", 1)
    outcome = measure.run(_small("1:1"))
    assert outcome.disturbed
    assert "1 not timed beside other processes" in report([outcome])


def test_a_timed_case_has_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MOST_OTHERS", 99)
    outcome = measure.run(parsed("x: f32[3, 4], y: f32[4] -> (x * y).tanh(); x"))
    assert outcome.seconds.keys() == {"ours", "eager"}
    assert 0 < outcome.ratio < 100
    assert [tuple(each.shape) for each in flat((torch.ones(2), [torch.ones(1)]))] == [(2,), (1,)]
