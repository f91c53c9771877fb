"""Shrunk programs on which the compiler once was wrong; each is named after what it needs."""

from __future__ import annotations

import pytest

from tests.fuzz.programs.check import check
from tests.fuzz.programs.form import Leaf, Program, Step

PROGRAMS = {
    "a sum written out whose first positions read nothing": Program(
        (
            Leaf("input", (9, 3), "float64", 1),
            Step("F.pad(_0, (2, 0, 2, 1))", (0,)),
            Leaf("input", (5, 9), "float64", 2),
            Leaf("input", (9, 4), "float64", 3),
            Step("(_0 @ _1) @ _2", (1, 2, 3)),
        ),
        (4,),
    ),
    "a maximum written out whose first positions read nothing": Program(
        (Leaf("input", (1, 1, 7), "float32", 1), Step("F.max_pool2d(_0, 3, 2, 1)", (0,))), (1,)
    ),
    "a step of float64 under a maximum of float32": Program(
        (
            Leaf("input", (17, 16, 2), "float32", 1),
            Step("_0.std(0, correction=1)", (0,)),
            Step("_0.logsumexp(-1)", (1,)),
        ),
        (2,),
    ),
    "a contraction read at other positions than those of the step it looks like": Program(
        (
            Leaf("input", (5, 5), "float32", 1),
            Step("_0 @ _0.triu().mT", (0,)),
            Step("(_0 @ _1).softmax(-1) @ _2", (0, 1, 0)),
        ),
        (2,),
    ),
    "a State that is assigned itself, turned": Program(
        (Leaf("state", (4, 4), "float32", 1), Step("_0.mT", (0,)), Step("_0 + 1", (0,))),
        (2,),
        assigns=((0, 1),),
        runs=2,
    ),
    "a condition that is known in less than half of the lanes": Program(
        (
            Leaf("input", (7, 7), "float32", 1),
            Step("lm.cat([_0, _1], 1)", (0, 0)),
            Step("_0 @ _0.triu().mT", (1,)),
        ),
        (2,),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_found_by_fuzzing(name: str) -> None:
    check(PROGRAMS[name])
