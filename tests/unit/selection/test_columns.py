"""Products of one factor joined along the same columns: one kernel, same values, stable names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import luminal as lm
from luminal.algebra.terms import Term, Terms
from luminal.backends.cpu import backend
from luminal.base.dtypes import float32
from luminal.hlir.graph import Builder
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.search.genome import Genome
from luminal.search.space import Candidate, Space
from luminal.selection.columns import columns
from luminal.shape.expression import Symbol, axis, const

ROWS, INNER = 33, 48


def heads(first: int, second: int) -> tuple[lm.Graph, dict[str, np.ndarray], np.ndarray]:
    """Keys and values of a linear attention, whose products both read x; what it should give."""
    rng = np.random.default_rng(2)
    given = {
        "x": rng.standard_normal((ROWS, INNER), np.float32),
        "k": rng.standard_normal((INNER, first), np.float32),
        "v": rng.standard_normal((INNER, second), np.float32),
    }
    cx = lm.Graph()
    x, k, v = (cx.tensor(array.shape, name=name) for name, array in given.items())
    ((x @ k).relu().transpose(0, 1) @ (x @ v).relu()).output("y")
    x64, k64, v64 = (array.astype(np.float64) for array in given.values())
    return cx, given, np.maximum(x64 @ k64, 0).T @ np.maximum(x64 @ v64, 0)


def joins(space: Space, candidate: Candidate) -> list[Genome]:
    moves = (move for move in space.moves(candidate) if move.choices[0][0] == "joined")
    return [move.of(candidate.genome) for move in moves]


def outputs(space: Space, candidate: Candidate, given: dict[str, np.ndarray]) -> np.ndarray:
    runner = space.backend.runner(candidate.program)
    return np.asarray(Executable(space.graph, (Variant({}, runner),))(given)["y"])


@pytest.mark.parametrize("width", [16, 40])
def test_two_products_of_one_factor_are_one_kernel(width: int) -> None:
    cx, given, expected = heads(width, width)
    space = Space(cx.graph(), backend.current())
    fast = space.decode(Genome())
    merged = []
    for genome in joins(space, fast):
        candidate = space.decode(genome)
        selection = candidate.stages.selection
        merged += [m for m in selection.merges if all(t.is_reduction for t in m)]
        found = outputs(space, candidate, given)
        # sums over columns in every order that a genome has
        np.testing.assert_allclose(found, expected, 1e-4, 1e-4 * np.abs(expected).max())
        assert len(candidate.program.kernels) <= len(fast.program.kernels)
        # Names are those of the program before: the way back, and all other moves, are there.
        back = next(m for m in space.moves(candidate) if m.choices[0][2] is None)
        assert back.of(genome) == Genome()
        own = {m.choices for m in space.moves(fast) if m.choices[0][0] == "residences"}
        now = {m.choices for m in space.moves(candidate) if m.choices[0][0] == "residences"}
        assert own & now
    assert merged
    assert all(len({term.axes for term in merge}) == 1 for merge in merged)


def test_what_is_apart_joins_nothing() -> None:
    """A genome may hold both choices: two of its moves, tried together."""
    cx, _, _ = heads(16, 16)
    space = Space(cx.graph(), backend.current())
    merges = 0
    for genome in joins(space, space.decode(Genome())):
        merges += len(space.decode(genome).stages.selection.merges)
        for name in genome.joined[0]:
            both = replace(genome, apart=(name,))
            assert not space.decode(both).stages.selection.merges
    assert merges


def test_other_widths_have_no_columns_in_common() -> None:
    cx, _, _ = heads(16, 24)
    space = Space(cx.graph(), backend.current())
    fast = space.decode(Genome())
    assert all(space.decode(genome).text == fast.text for genome in joins(space, fast))


def products() -> tuple[Term, ...]:
    """x[m, k] by a[k, n], b[k, j] and c[k, i], where i is shorter; the same sum over j."""
    terms, builder = Terms(), Builder()
    m, k, n, j, i = axis("m", 3), axis("k", 4), axis("n", 5), axis("j", 5), axis("i", 6)

    def leaf(name: str, *frame: Symbol) -> Term:
        shape = tuple(const(1) * a.extent for a in frame if a.extent is not None)
        return terms.leaf(builder.input(name, shape, float32), tuple((a,) for a in frame))

    x = leaf("x", m, k)

    def product(name: str, column: Symbol) -> Term:
        factors = (x, leaf(name, k, column))
        return terms.reduce("Sum", (k,), terms.pointwise("Mul", factors, float32))

    square = leaf("square", m, n, j)
    over = terms.reduce("Sum", (j,), terms.pointwise("Mul", (square, square), float32))
    return product("a", n), product("b", j), product("c", i), over


def test_columns_are_matched_by_their_extents() -> None:
    a, b, c, over = products()
    ((own, wanted),) = (columns(b, a) or {}).items()
    assert (own.name, wanted.name) == ("j", "n")
    assert columns(a, c) is None
    assert columns(a, a) == {}
    assert columns(a.args[0], b) is None  # no reduction
    assert columns(over, b) is None  # which sums over the other's columns itself
