"""Loops on the interpreted device: slices from either end, at steps, and Loops inside of Loops."""

from __future__ import annotations

from typing import Any

import pytest

import luminal as lm
from luminal.program.launch_list import LoopLaunch
from tests.backends.interpreted.devices import compiled, drawn
from tests.close import close_each

Pair = tuple[lm.Tensor, lm.Tensor]


def summed(carry: lm.Tensor, x: lm.Tensor) -> Pair:
    following = (carry * 0.5 + x).softmax(0)
    return following, following.sum()


def rows(x: lm.Tensor) -> Pair:
    return lm.scan(summed, x[0] * 0, x)


def from_the_end(x: lm.Tensor) -> Pair:
    return lm.scan(summed, x[0] * 0, x.flip(0))


def every_other(x: lm.Tensor) -> Pair:
    return lm.scan(summed, x[0] * 0, x[1::2])


def nested(x: lm.Tensor) -> Pair:
    """For each of the first rows a scan over all of the rest."""

    def outer(carry: lm.Tensor, row: lm.Tensor) -> Pair:
        last, _ = lm.scan(lambda c, each: summed(c + row, each), carry, x[2:])
        return last, last

    return lm.scan(outer, x[0] * 0, x[:2])


@pytest.mark.parametrize("loop", [rows, from_the_end, every_other, nested])
def test_loops_give_what_the_reference_gives(loop: Any) -> None:
    x = drawn(6, 5)
    cx = lm.Graph()
    last, ys = loop(cx.tensor(x.shape, name="x"))
    last.output("last")
    ys.output("ys")
    expected = lm.compile(cx, "reference")(x=x)
    exe = compiled(cx.graph())
    program = exe._variants[0].runner.program  # type: ignore[attr-defined]
    assert any(isinstance(launch, LoopLaunch) for launch in program.launches)
    for _ in range(2):
        found = exe(x=x)
        for name in ("last", "ys"):
            close_each(found[name], expected[name], ulp=8)
