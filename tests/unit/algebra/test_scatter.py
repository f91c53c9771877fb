"""Along which axes positions of a Scatter may meet: the law, against all positions one by one."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

import luminal as lm
from luminal.algebra import scatter
from luminal.algebra.lower import lower
from luminal.algebra.scatter import ordered_axes, positions
from luminal.algebra.terms import Term, term_order
from luminal.frontend.handle import along
from luminal.frontend.movement.scatter import written
from luminal.hlir.graph import Graph
from luminal.shape.expression import Expression, Symbol, const
from tests.fuzz.scatters import random_scatter

SEEDS = 150


def scatters(graph: Graph) -> list[Term]:
    order = term_order(root.term for root in lower(graph).roots)
    return [term for term in order if term.op == "Scatter"]


def axes_of(term: Term) -> list[Symbol]:
    return [axis for dimension in term.attrs.frames[1] for axis in dimension]


def moved_apart(term: Term, dims: dict[str, int]) -> set[Symbol]:
    """The axes along which positions that meet differ, if every index tensor is constant."""
    axes = axes_of(term)
    entries = [entry for entry in positions(term) if isinstance(entry, Expression)]
    extents = [int(axis.extent.evaluate(dims)) for axis in axes if axis.extent is not None]
    meeting: defaultdict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
    for point in itertools.product(*map(range, extents)):
        env = dims | {axis.name: at for axis, at in zip(axes, point, strict=True)}
        meeting[tuple(int(entry.evaluate(env)) for entry in entries)].append(point)
    found = set[Symbol]()
    for points in meeting.values():
        for axis, values in zip(axes, zip(*points, strict=True), strict=True):
            if len(set(values)) > 1:
                found.add(axis)
    return found


def check_seeds() -> int:
    """How many axes were found to be free."""
    free = 0
    for seed in range(SEEDS):
        case = random_scatter(seed)
        for term in scatters(case.graph):
            ordered = ordered_axes(term)
            assert moved_apart(term, case.dims) <= set(ordered), f"seed {seed}"
            assert list(ordered) == [axis for axis in axes_of(term) if axis in ordered]
            free += len(axes_of(term)) - len(ordered)
    return free


def test_positions_that_meet_differ_along_ordered_axes_only() -> None:
    assert check_seeds() > SEEDS / 2


def every_axis(entry: Expression, known: Any, axes: list[Symbol]) -> set[Symbol]:
    """Digits that overlap are taken for digits."""
    return {axis for axis in axes if entry.coefficient(axis) not in (None, const(0))}


def of_one_dim(entry: Expression, known: Any, axes: list[Symbol]) -> set[Symbol]:
    """Strides are not compared with what smaller ones reach."""
    own = [axis for axis in axes if axis in entry.symbols()]
    return set(own) if len({str(entry.coefficient(axis)) for axis in own}) == len(own) else set()


@pytest.mark.parametrize("wrong", [every_axis, of_one_dim], ids=lambda wrong: wrong.__name__)
def test_a_planted_fault_is_found(
    wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scatter, "read_back", wrong)
    with pytest.raises(AssertionError, match="seed"):
        check_seeds()


# --- what must be found, by the letters of the source's dims

N = 40
Write = Callable[[lm.Graph, lm.Tensor, lm.Tensor, lm.Tensor], lm.Tensor]


def at(*entries: Any) -> Write:
    """A Scatter at these coordinates: functions of the source's indices, "i" for a tensor."""

    def write(cx: lm.Graph, x: lm.Tensor, source: lm.Tensor, i: lm.Tensor) -> lm.Tensor:
        index = [along(k, n) for k, n in enumerate(source.extents)]
        return written(x, [i if e == "i" else e(*index) for e in entries], source, "add")

    return write


LAW: dict[str, tuple[tuple[int, ...], tuple[int, ...], Write, tuple[int, ...]]] = {
    "rows": ((4, 6), (9, 6), at("i", lambda r, c: c), (0,)),
    "columns": ((4, 6), (4, 9), at(lambda r, c: r, "i"), (1,)),
    "none": ((4, 6), (9,), at("i"), (0, 1)),
    "backwards": ((4, 6), (9, 6), at("i", lambda r, c: 5 - c), (0,)),
    "offset": ((4, 6), (9, 9), at("i", lambda r, c: c + 3), (0,)),
    "apart": ((4, 6), (9, 12), at("i", lambda r, c: 2 * c), (0,)),
    "digits": ((4, 6), (24,), at(lambda r, c: 6 * r + c), ()),
    "digits turned": ((4, 6), (24,), at(lambda r, c: r + 4 * c), ()),
    "digits with gaps": ((4, 6), (40,), at(lambda r, c: 8 * r + c), ()),
    "digits that overlap": ((4, 6), (40,), at(lambda r, c: 5 * r + c), (0, 1)),
    "a window that overlaps": ((4, 6), (9, 9), at(lambda r, c: r + c, lambda r, c: r), ()),
    "a diagonal": ((4, 6), (9, 9), at(lambda r, c: r, lambda r, c: r), (1,)),
    "the quotient": ((4, 6), (4, 3), at(lambda r, c: r, lambda r, c: c // 2), (1,)),
    "three": ((3, 4, 6), (3, 9, 6), at(lambda b, r, c: b, "i", lambda b, r, c: c), (1,)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAW)
def test_what_is_free(name: str) -> None:
    shape, dest, write, expected = LAW[name]
    cx = lm.Graph()
    i = cx.tensor(shape, lm.int64, name="i")
    write(cx, cx.tensor(dest, name="x"), cx.tensor(shape, name="s"), i).output("y")
    (term,) = scatters(cx.graph())
    frame = term.attrs.frames[1]
    assert [k for k, (axis,) in enumerate(frame) if axis in ordered_axes(term)] == list(expected)


@pytest.mark.parametrize(("dtype", "free"), [(lm.int64, True), (lm.uint8, False)], ids=str)
def test_an_index_tensor_that_counts_is_free_unless_it_may_wrap(
    dtype: lm.DType, free: bool
) -> None:
    cx = lm.Graph()
    x, s = cx.tensor((300, 9), name="x"), cx.tensor((300,), name="s")
    i = cx.tensor((300,), lm.int64, name="i")
    written(x, [cx.arange(300, dtype=dtype), i], s, "add").output("y")
    (term,) = scatters(cx.graph())
    assert (ordered_axes(term) == ()) is free


@pytest.mark.parametrize(("factor", "free"), [(1, True), (2, False)])
def test_a_stride_that_is_a_dim_must_exceed_what_smaller_ones_reach(
    factor: int, free: bool
) -> None:
    cx = lm.Graph()
    n = cx.dim("n", 1, 9)
    x, s = cx.tensor((8 * n,), name="x"), cx.tensor((4, n), name="s")
    row, column = (along(k, extent) for k, extent in enumerate(s.extents))
    written(x, [row * n + factor * column], s, "add").output("y")
    (term,) = scatters(cx.graph())
    assert (ordered_axes(term) == ()) is free
