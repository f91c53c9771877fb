"""Kernels by groups in expanded IR: races, barriers that some lanes miss, and where barriers go."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from luminal.base import dtypes
from luminal.base.errors import VerifyError
from luminal.expand import interpreter, ir, verify
from luminal.expand.expand import expand
from luminal.kernel import tile_interpreter, tile_verify
from luminal.kernel.barriers import exchanging, in_shared_memory, with_barriers
from luminal.kernel.lanes import Lanes
from luminal.kernel.tile_ir import (
    Barrier,
    Binding,
    Buffer,
    Grid,
    Kernel,
    Load,
    Loop,
    Role,
    Space,
    Statement,
    Store,
    Tile,
)
from luminal.shape.expression import axis, const
from tests.backends.c_family.kernels import Writer, index
from tests.close import close
from tests.expand.group_kernels import F32, reversal, row_sums
from tests.long_share import long_rows


@pytest.mark.parametrize(
    ("together", "n"),
    long_rows(
        product([1, 2, 4, 16], [1, 3, 37, 64]), [(1, 64), (2, 37), (4, 3), (16, 1), (16, 37)]
    ),
)
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    ("lanes", "shared_rows", "unroll", "run"), [(4, 4, 2, 4), (32, 2, 1, 1), (2, 8, 3, 2)]
)
def test_lanes_fold_in_the_order_of_a_tile(
    n: int, apart: bool, together: int, lanes: int, shared_rows: int, unroll: int, run: int
) -> None:
    made = row_sums(5, n, lanes, shared_rows, unroll, apart=apart, run=run)
    kernel = exchanging(made, together)
    tile_verify.verify(kernel)
    expanded = expand(kernel)
    verify.verify(expanded)
    assert expanded.lanes == kernel.lanes == lanes * shared_rows
    assert expanded.subgroup == together
    exchanges = [each for each in expanded.statements() if isinstance(each, ir.Exchange)]
    near = max(1, together // shared_rows) if apart else together
    assert len(exchanges) == int(math.log2(min(lanes, near)))
    x = np.random.default_rng(n).standard_normal(5 * n).astype(np.float32)
    first, second = np.zeros(5, np.float32), np.zeros(5, np.float32)
    tile_interpreter.run(kernel, {"x": x, "y": first}, {})
    interpreter.run(expanded, {"x": x, "y": second}, {})
    assert first.tobytes() == second.tobytes()
    close(first, x.reshape(5, n).sum(1))


def ran(kernel: Kernel) -> None:
    tile_verify.verify(kernel)
    expanded = expand(kernel)
    verify.verify(expanded)
    x, y = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    interpreter.run(expanded, {"x": x, "y": y}, {})
    np.testing.assert_array_equal(y, x[::-1])


@pytest.mark.parametrize("most", [0, 1000], ids=["scratch", "shared"])
def test_barriers_stand_where_lanes_learn_of_each_other(most: int) -> None:
    kernel = in_shared_memory(reversal(), most)
    with pytest.raises(VerifyError, match=r"writes row\[\d\], which lane \d reads in .*barrier"):
        ran(kernel)
    written = with_barriers(kernel)
    # before the row is read, and before the next chunk writes it
    assert [type(each) for each in written.body] == [Barrier, Loop, Barrier, Loop]
    ran(written)
    assert with_barriers(written) == written


def touching(*stores: tuple[str, bool]) -> Kernel:
    """Loops of lanes, each of which stores to a buffer, or adds to it; both are read at the end."""
    n, lanes = 8, Lanes(4)
    walks: list[Statement] = []
    for number, (name, add) in enumerate((*stores, ("y", False))):
        k = axis(f"k{number}", n)
        value = Tile(number, (k,), F32)
        source = "x" if number < len(stores) else "row"
        body = (Load(value, source, k + 0), Store(name, k + 0, value, add=add))
        walks.append(Loop(k, const(0), const(n), body, (), 1, 1, lanes))
    return Kernel(
        (), (Buffer("x", F32, const(n)), Buffer("y", F32, const(n), role=Role.OUT)),
        (Buffer("row", F32, const(n), Space.SHARED, Role.INOUT),), (Grid(axis("g", 1), const(1)),),
        tuple(walks),
    )  # fmt: skip


def barriers_of(kernel: Kernel) -> str:
    """The top level of a kernel: `L` for a loop, `|` for a barrier."""
    return "".join("|" if isinstance(each, Barrier) else "L" for each in kernel.body)


def test_two_stores_to_what_lanes_share_wait_for_each_other() -> None:
    assert barriers_of(with_barriers(touching(("row", False), ("row", False)))) == "|L|L|L"
    assert barriers_of(with_barriers(touching(("row", False)))) == "|L|L"


@pytest.mark.parametrize("add", [False, True])
def test_what_is_added_again_waits_for_what_was_added_before(add: bool) -> None:
    """A store has its element in one lane each time; one that adds may read another lane's."""
    kernel = touching(("row", add))
    again = Loop(axis("again", 3), const(0), const(3), kernel.body[:1])
    written = with_barriers(replace(kernel, body=(again, *kernel.body[1:])))
    (outer,) = (each for each in written.body if isinstance(each, Loop) and each.stop == const(3))
    assert [type(each) for each in outer.body] == [*[Barrier] * add, Loop]


def test_a_kernel_of_one_lane_has_no_barriers() -> None:
    kernel = reversal()
    alone = replace(
        kernel,
        body=tuple(replace(each, lanes=Lanes()) for each in kernel.body),  # type: ignore[type-var]
    )
    assert with_barriers(alone) is alone
    assert in_shared_memory(alone, 1000) is alone


def grouped(w: Writer, lane: ir.Value) -> ir.Kernel:
    made = w.kernel(("y", dtypes.int64, Role.OUT))
    return replace(made, lanes=4, lane=lane, shared=(Buffer("s", dtypes.int64, const(4)),))


def refused(kernel: ir.Kernel, match: str) -> None:
    with pytest.raises(VerifyError, match=match):
        verify.verify(kernel)


@pytest.mark.parametrize("kind", ["if", "loop"])
def test_a_barrier_that_some_lanes_miss_is_refused(kind: str) -> None:
    w = Writer()
    lane = w.new(dtypes.int64)
    half = w.apply("lt", lane, index(2))
    setup = w.taken()
    body: ir.Statement = ir.If(half, (), (ir.Barrier(),))
    if kind == "loop":
        body = ir.Loop(w.new(dtypes.int64), index(0), lane, 1, (), (ir.Barrier(),))
    w.body = [body]
    kernel = replace(grouped(w, lane), setup=setup)
    refused(kernel, "some lanes may meet in it and others not; put")
    with pytest.raises(VerifyError, match=r"lanes 0 and [12] do not meet"):
        interpreter.run(kernel, {"y": np.zeros(1, np.int64)}, {"n": 1})


def test_a_condition_that_all_lanes_share_may_hold_a_barrier() -> None:
    w = Writer()
    lane = w.new(dtypes.int64)
    shares = w.apply("lt", w.chunk, index(2))
    w.body.append(ir.If(shares, (), (ir.Barrier(),)))
    kernel = grouped(w, lane)
    verify.verify(kernel)
    interpreter.run(kernel, {"y": np.zeros(1, np.int64)}, {"n": 1})


def test_lanes_exchange_values_but_learn_nothing_of_memory() -> None:
    w = Writer()
    lane, got = w.new(dtypes.int64), w.new(dtypes.int64)
    w.body.append(ir.Exchange(got, lane, 2))
    w.store("y", lane, got)
    kernel = replace(grouped(w, lane), subgroup=4)
    verify.verify(kernel)
    y = np.zeros(4, np.int64)
    interpreter.run(kernel, {"y": y}, {"n": 4}, range(1))
    assert [*y] == [2, 3, 0, 1]
    store, load = ir.Store("s", lane, got), ir.Load(w.new(dtypes.int64), "s", got)
    exchange, again = kernel.body[0], ir.Exchange(w.new(dtypes.int64), got, 1)
    race = replace(kernel, body=(exchange, store, again, load))
    verify.verify(race)
    with pytest.raises(VerifyError, match=r"lane \d reads s.*put a barrier between them"):
        interpreter.run(race, {"y": y}, {"n": 4}, range(1))


@pytest.mark.parametrize(("distance", "together"), [(4, 4), (3, 4), (0, 4), (1, 1)])
def test_an_exchange_reaches_lanes_that_are_together(distance: int, together: int) -> None:
    w = Writer()
    lane = w.new(dtypes.int64)
    w.body.append(ir.Exchange(w.new(dtypes.int64), lane, distance))
    kernel = replace(grouped(w, lane), subgroup=together)
    refused(kernel, f"{together} lanes exchange; take a power of two below")


def test_an_exchange_that_some_lanes_miss_is_refused() -> None:
    w = Writer()
    lane = w.new(dtypes.int64)
    half = w.apply("lt", lane, index(2))
    w.body.append(ir.If(half, (), (ir.Exchange(w.new(dtypes.int64), lane, 1),)))
    kernel = replace(grouped(w, lane), subgroup=4)
    refused(kernel, "some lanes may meet in it and others not")
    with pytest.raises(VerifyError, match="lanes 0 and 2 do not meet"):
        interpreter.run(kernel, {"y": np.zeros(1, np.int64)}, {"n": 1})


@pytest.mark.parametrize("together", [0, 3, 64])
def test_rows_of_lanes_divide_groups(together: int) -> None:
    kernel = replace(row_sums(5, 9, 16, 2, 1), subgroup=together)
    with pytest.raises(VerifyError, match=f"{together} of 32 lanes are a subgroup"):
        tile_verify.verify(kernel)


def test_a_barrier_needs_a_group() -> None:
    w = Writer()
    w.body = [ir.Barrier()]
    refused(w.kernel(("y", dtypes.int64, Role.OUT)), "one lane, which waits for nobody")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda loop: replace(loop, lanes=Lanes(3)), "both are powers of two"),
        (lambda loop: replace(loop, lanes=Lanes(4, 1, 3)), "have runs of 3; of several a run is"),
        (lambda loop: replace(loop, lanes=Lanes(1, 1, 4)), "1 lanes have runs of 4"),
        (lambda loop: replace(loop, vector=4), "bound to lanes and to vectors"),
    ],
)
def test_tile_ir_refuses_wrong_lanes(change: object, match: str) -> None:
    kernel = reversal(Barrier(Binding.GROUP))
    assert callable(change)
    wrong = replace(kernel, body=(change(kernel.body[0]), *kernel.body[1:]))
    with pytest.raises(VerifyError, match=match):
        tile_verify.verify(wrong)


def test_loops_inside_each_other_take_other_lanes() -> None:
    kernel = row_sums(5, 9, 4, 2, 1)
    (zero, walk) = kernel.body
    assert isinstance(walk, Loop)
    wrong = replace(kernel, body=(zero, replace(walk, lanes=Lanes(2, 2))))
    with pytest.raises(VerifyError, match="the loop over r is dealt to these lanes"):
        tile_verify.verify(wrong)


def test_shared_memory_has_a_literal_size() -> None:
    kernel = reversal(Barrier(Binding.GROUP))
    (row,) = kernel.scratch
    size = axis("n", 100)
    wrong = replace(kernel, scratch=(replace(row, space=Space.SHARED, size=size),), params=(size,))
    with pytest.raises(VerifyError, match="shared memory of n elements; give a literal size"):
        tile_verify.verify(wrong)
