"""A search of a training step compares what the step has done: Parameters are among its results."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm
from luminal import optim
from luminal.backends import registry
from luminal.base.numerics import Numerics
from luminal.search import operands
from luminal.search.genome import Genome
from luminal.search.runner import Runner
from luminal.search.space import Space
from luminal.session import graph as session


@pytest.mark.long
def test_parameters_are_compared_from_the_same_beginning() -> None:
    """By NumPy: w - 0.5 * x^T (x w - y) / n; each run begins from the w of before."""
    cx = lm.Graph("step")
    x, y = cx.tensor((4, 3), name="x"), cx.tensor((4, 2), name="y")
    w = lm.Parameter((3, 2), name="w")
    w.set(np.ones((3, 2), np.float32))
    loss = ((x @ w - y).square().sum() / 8).output("loss")
    optim.SGD([w], lr=0.5).step(loss)
    space = Space(session.narrowed(cx), registry.compiling("cpu"), Numerics.STANDARD)
    arrays = operands.draw(space.graph, {}, {}, seed=0)
    program = space.decode(Genome()).stages.program
    shared = operands.share(space.graph, arrays)
    runner = Runner("cpu", shared, 10.0)
    try:
        numbers = runner.add(program), runner.add(program)
        apart = runner.distance(*numbers)
        again = runner.distance(*numbers)
        everything = [np.arange(3), np.arange(2)]
        elements = [runner.elements(n, {f"state {w.id}": everything}) for n in numbers]
    finally:
        runner.close()
        shared.close()
    assert apart == again
    assert {*apart} == {"loss", f"state {w.id}"}
    assert all(distance.far == 0 for distance in apart.values())
    given, wanted = arrays.inputs["x"], arrays.inputs["y"]
    ones = np.ones((3, 2))
    expected = ones - 0.5 * given.T.astype(float) @ (given @ ones - wanted) / 4
    for found in elements:
        np.testing.assert_allclose(found[f"state {w.id}"], expected, rtol=1e-5)  # sums of four rows
