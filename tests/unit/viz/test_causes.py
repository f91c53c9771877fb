"""What is said of a kernel's code, for kernels that differ in one thing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import luminal as lm
from luminal.backends import registry
from luminal.compiler.compile import lower_to_program
from luminal.session import graph as session
from luminal.viz.causes import causes

Record = Callable[[lm.Tensor], lm.Tensor]
SIDE_BY_SIDE = "numbers side by side, along i"


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (lambda x: x.exp() * 2,
         [SIDE_BY_SIDE, "its busiest loop (i0) has 1 Exp, 1 Mul, 1 load, 1 store"]),
        (lambda x: x.T.exp(),
         [SIDE_BY_SIDE, "has 1 Exp, 1 load, 1 store",
          "whose neighbours along i1 lie 96 elements apart: 1 of 2"]),
        (lambda x: lm.nn.functional.avg_pool2d(x.reshape(1, 1, 64, 96), 3, 1, 1),
         [SIDE_BY_SIDE, "has 9 Add, 1 Div, 9 loads, 8 of them under conditions, 1 store"]),
        (lambda x: x[:, x.argmax(1)],
         [SIDE_BY_SIDE, "has 2 Select, 4 loads, 1 of them under conditions, 1 store",
          "at computed places, one by one: 1 of 5"]),
        (lambda x: x.sort(-1).values, ["no loop runs in vectors"]),
    ],
)  # fmt: skip
def test_a_kernel_in_words(record: Record, expected: list[str]) -> None:
    """Of the last kernel, which stores the result."""
    cx = lm.Graph()
    record(cx.tensor((64, 96), name="x")).output("y")
    program = lower_to_program(session.narrowed(cx), registry.compiling("cpu"))
    sentences = causes(program.kernels[-1])
    assert len(sentences) == len(expected), sentences
    for sentence, part in zip(sentences, expected, strict=True):
        assert part in sentence
