"""Random graphs on the reference: they run, round trip as text, and agree with their bounds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from luminal.backends.reference import evaluate, evaluate_with_bounds
from luminal.hlir.parser import parse
from luminal.hlir.printer import to_text
from luminal.hlir.verify import verify
from tests.fuzz.graphs import Case, cases, random_case
from tests.long_share import mostly_long
from tests.numerics.tolerance import compare


def check(case: Case) -> None:
    verify(case.graph)
    bounds = evaluate_with_bounds(case.graph, case.inputs, case.dims)
    plain = evaluate(case.graph, case.inputs, case.dims)
    assert plain.keys() == bounds.outputs.keys()
    for name, array in plain.items():
        compare(array, *bounds.outputs[name], name=name)
        assert array.tobytes() == bounds.outputs[name].value.tobytes()
    for state, bounded in bounds.states.items():
        compare(state.numpy(), *bounded, name=state.name)
    text = to_text(case.graph)
    again = parse(text)
    verify(again)
    assert to_text(again) == text


@pytest.mark.parametrize("chunk", mostly_long(range(8), 1))
def test_cases_of_seeds(chunk: int) -> None:
    for seed in range(25 * chunk, 25 * (chunk + 1)):
        try:
            check(random_case(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.long
def test_a_seed_is_one_case_in_every_process() -> None:
    code = (
        "import zlib; from luminal.hlir.printer import to_text; "
        "from tests.fuzz.graphs import random_case; cases = [random_case(s) for s in range(20)]; "
        "print(zlib.crc32(''.join(to_text(c.graph) for c in cases).encode()), "
        "zlib.crc32(b''.join(a.tobytes() for c in cases for a in c.inputs.values())))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


@given(case=cases())
@settings(max_examples=10, suppress_health_check=list(HealthCheck))
def test_cases_of_hypothesis(case: Case) -> None:
    check(case)
