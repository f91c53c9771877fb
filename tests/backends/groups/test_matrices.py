"""Products that lanes compute together by matrix dots: by made-up ones of 4 x 4 x 4, which any
device could have, and by NVIDIA's, both run by both meanings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product as product_of
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.c_backend import CBackend
from luminal.base import dtypes
from luminal.base.dots import MADE_UP, MADE_UP_F32, MMA, Dot
from luminal.base.errors import VerifyError
from luminal.base.numerics import Numerics
from luminal.compiler import compile
from luminal.compiler.compile import lower_by_stages
from luminal.expand import interpreter, ir
from luminal.expand.expand import expand
from luminal.expand.ir import Type
from luminal.expand.verify import verify as verify_expanded
from luminal.hlir.graph import Graph
from luminal.kernel import tile_interpreter
from luminal.kernel.knobs import KnobError, Knobs, as_knobs
from luminal.kernel.lanes import Part
from luminal.kernel.product_blocks import Products, place_blocks
from luminal.kernel.product_sides import sides_of
from luminal.kernel.product_tiling import ProductTiling, shared_bytes
from luminal.kernel.tile_ir import Contract, Copy, Kernel, Loop, Space, Store
from luminal.kernel.tile_verify import verify
from luminal.program.steps import NestStep
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from tests.backends.cpu.schedule.knob_choices import sample
from tests.backends.groups.matrix_backend import Change, backend, changed, dots_of
from tests.backends.groups.product_graphs import GRAPHS, case, products
from tests.backends.groups.ring_faults import FAULTS, Fault
from tests.backends.on_device import check_case
from tests.long_share import long_but, long_rows, mostly_long

WITHOUT = ("f64", "i32")
SHORT = ("both turned", "linear", "bf16", "dims")
ALONE = as_knobs({"stages": 1, "copies": "values"})
"""One block, copied by way of registers."""
LOADS = frozenset({("load_matrix", Type(dtypes.uint32))})


def placed(graph: Graph, made: CBackend, knobs: Knobs = ()) -> Kernel:
    """The kernel of a graph that is one."""
    (step,) = lower_by_stages(graph, made, Numerics.RELAXED).partition.steps
    assert isinstance(step, NestStep)
    return made.schedules.place(step, knobs).kernel


def check(name: str, most: int) -> None:
    run, made = case(name), backend()
    stages = lower_by_stages(run.graph, made)
    for key, knobs in sample(name, products(stages, made), most):
        program = compile.reschedule(stages, made, {key: knobs}).program
        exe = Executable(run.graph, (Variant({}, made.runner(program)),))
        try:
            check_case(exe, run, 1.0)
        except Exception as error:
            error.add_note(f"{name} with {knobs}")
            raise


@pytest.mark.parametrize("name", long_but(GRAPHS, SHORT))
def test_products_by_a_made_up_dot(name: str) -> None:
    run, made = case(name), backend()
    stages = lower_by_stages(run.graph, made)
    dots = {dot for kernel in stages.program.kernels for dot in dots_of(kernel)}
    assert bool(dots) == (name not in WITHOUT)
    exe = Executable(run.graph, (Variant({}, made.runner(stages.program)),))
    check_case(exe, run, 1.0)


@pytest.mark.long
@pytest.mark.parametrize("name", GRAPHS)
def test_choices_of_products_by_a_made_up_dot(name: str) -> None:
    check(name, 8)


def product(dtype: str, *turned: bool) -> Graph:
    """Of matrices that lie along the sum (`turned` twice) or across it; edges are masked."""
    cx = lm.Graph()
    a = cx.tensor((21, 17) if turned[0] else (17, 21), name="a", dtype=dtype)
    b = cx.tensor((11, 21) if turned[1] else (21, 11), name="b", dtype=dtype)
    a, b = (x.transpose(0, 1) if t else x for x, t in zip((a, b), turned, strict=True))
    if dtype == "int8":
        a, b = a.cast("i32"), b.cast("i32")
    (a @ b).output("y")
    return cx.graph()


# By one meaning and by the other, where rows of lanes load matrices together and where they do not.
@pytest.mark.parametrize(
    ("dtype", "turned"),
    long_rows(
        product_of(
            ["bfloat16", "float16", "int8", "float32", "float64"], [(False, False), (True, True)]
        ),
        [("bfloat16", (False, False)), ("int8", (True, True))],
    ),
)
def test_nvidias_dots_by_both_meanings(dtype: str, turned: tuple[bool, bool]) -> None:
    kernel = placed(product(dtype, *turned), backend(MMA), ALONE)
    (dot,) = dots_of(kernel)
    rng, storage = np.random.default_rng(0), dtypes.dtype_of(dtype).numpy
    given = {
        buffer.name: rng.integers(-3, 4, buffer.size.constant).astype(buffer.dtype.numpy)
        for buffer in kernel.buffers
    }
    a, b = (given[buffer.name].astype(np.float64) for buffer in kernel.buffers[:2])
    a = a.reshape(21, 17).T if turned[0] else a.reshape(17, 21)
    b = b.reshape(11, 21).T if turned[1] else b.reshape(21, 11)
    results = []
    for instructions in (None, frozenset(), LOADS):
        arrays = {name: x.copy() for name, x in given.items()}
        if instructions is None:
            tile_interpreter.run(kernel, arrays, {})
        else:
            expanded = expand(kernel, instructions=instructions)
            verify_expanded(expanded)
            loads = [s for s in expanded.statements() if isinstance(s, ir.LoadMatrix)]
            assert bool(loads) == (bool(instructions) and dtype != "float64")
            interpreter.run(expanded, arrays, {})
        results.append(arrays[kernel.buffers[2].name])
    expected = (a @ b).astype(results[0].dtype if storage.kind != "i" else np.int32)
    for result in results:
        np.testing.assert_array_equal(result.reshape(17, 11), expected)
    assert dot in MMA


def whole(dtype: str) -> Graph:
    """A product whose factors lanes can copy 16 bytes at once; rows and columns are masked."""
    cx = lm.Graph()
    a, b = (
        cx.tensor(shape, name=name, dtype=dtype)
        for name, shape in (("a", (18, 56)), ("b", (56, 24)))
    )
    (a @ b).output("y")
    return cx.graph()


def given_to(kernel: Kernel) -> dict[str, Any]:
    """Small numbers, so that sums are exact, and what they give."""
    rng = np.random.default_rng(0)
    return {
        buffer.name: rng.integers(-3, 4, buffer.size.constant).astype(buffer.dtype.numpy)
        for buffer in kernel.buffers
    }


MEANINGS: dict[str, Callable[[Kernel, dict[str, Any]], None]] = {
    "tiles": lambda kernel, arrays: tile_interpreter.run(kernel, arrays, {}),
    "lanes": lambda kernel, arrays: interpreter.run(expand(kernel), arrays, {}),
}


def is_right(kernel: Kernel, meaning: str) -> bool:
    """Does a kernel of `whole` compute the product?"""
    arrays = given_to(kernel)
    a, b = (arrays[buffer.name].astype(np.float64) for buffer in kernel.buffers[:2])
    expected = a.reshape(18, 56) @ b.reshape(56, 24)
    MEANINGS[meaning](kernel, arrays)
    found = arrays[kernel.buffers[2].name].astype(np.float64)
    return bool(
        (found == expected.astype("f4").astype(kernel.buffers[2].dtype.numpy).ravel()).all()
    )


def ring_of(stages: int, dots: tuple[Dot, ...]) -> Knobs:
    """So many blocks of few steps, whose lanes copy from both factors, and multiply what others
    copied.
    """
    made = backend(dots)
    (step,) = lower_by_stages(whole("bfloat16"), made).partition.steps
    assert isinstance(step, NestStep)
    _, choices = made.schedules.explored(step, None, ())
    able = {}
    for name in map(str, choices.offered["blocks"]):
        rows, columns, *tile = map(int, re.findall(r"\d+", name))
        if rows % 8 == columns % 8 == 0:
            able[name] = rows // tile[0] * columns // tile[1], -rows * columns
    blocks = max(able, key=lambda name: able[name])
    assert able[blocks][0] > 1
    deep = 2 * dots[0].k
    return as_knobs({"stages": stages, "blocks": blocks, "deep": deep})


RINGS = [f"{name} in {stages}" for name in ("made up", "mma") for stages in (2, 3, 4)]


@pytest.mark.parametrize(
    ("meaning", "ring"),
    long_rows(product_of(MEANINGS, RINGS), [("tiles", "made up in 3"), ("lanes", "mma in 4")]),
)
def test_rings(meaning: str, ring: str) -> None:
    stages, dots = int(ring[-1]), MMA if ring.startswith("mma") else MADE_UP
    kernel = placed(whole("bfloat16"), backend(dots), ring_of(stages, dots))
    assert sum(isinstance(each, Copy) for each in kernel.statements()) == 2 * stages
    verify(kernel)
    verify_expanded(expand(kernel))
    assert is_right(kernel, meaning)


@pytest.mark.long
# What is copied by way of registers goes into the ring too, in time.
def test_a_ring_of_what_only_one_factor_is_copied_to() -> None:
    cx = lm.Graph()
    a, b = cx.tensor((18, 56), name="a"), cx.tensor((56, 24), name="b")
    (a.exp() @ b).output("y")
    kernel = placed(cx.graph(), backend(), as_knobs({"deep": 8, "stages": 3}))
    assert sum(isinstance(each, Copy) for each in kernel.statements()) == 3
    found = []
    for meaning in MEANINGS.values():
        arrays = given_to(kernel)
        expected = np.exp(arrays["b0"].reshape(18, 56)) @ arrays["b1"].reshape(56, 24)
        meaning(kernel, arrays)
        # Sums of 56 products of float32 in blocks of four, the largest of some hundreds.
        np.testing.assert_allclose(arrays["b2"].reshape(18, 24), expected, rtol=1e-5, atol=1e-3)
        found.append(arrays["b2"])
    np.testing.assert_array_equal(*found)


def test_f32_is_not_shortened_unless_that_is_allowed() -> None:
    graph = product("float32", False, False)
    for numerics, count in ((Numerics.STANDARD, 0), (Numerics.RELAXED, 1)):
        (kernel,) = lower_by_stages(graph, backend(MMA), numerics).program.kernels
        assert len(dots_of(kernel)) == count


def test_exact_numerics_multiply_bytes_by_matrices_alone() -> None:
    for dtype, count in (("bfloat16", 0), ("int8", 1)):
        stages = lower_by_stages(product(dtype, False, False), backend(MMA), Numerics.EXACT)
        (kernel,) = stages.program.kernels
        assert len(dots_of(kernel)) == count


def test_the_dot_is_a_choice() -> None:
    made = backend()
    (step,) = lower_by_stages(case("product").graph, made).partition.steps
    assert isinstance(step, NestStep)
    offered = {
        value for knobs in made.schedules.space(step) for name, value in knobs if name == "dot"
    }
    assert offered == {"none"}
    assert dots_of(made.schedules.place(step).kernel) == {MADE_UP_F32}
    assert not dots_of(made.schedules.place(step, (("dot", "none"),)).kernel)


def test_the_shared_memory_of_blocks_is_all_that_they_have() -> None:
    for dtype in ("bfloat16", "int8"):
        (step,) = lower_by_stages(product(dtype, True, False), backend(MMA)).partition.steps
        assert isinstance(step, NestStep)
        made, _ = backend(MMA).schedules.explored(step, None, ())
        assert isinstance(made, ProductTiling)
        kernel = placed(product(dtype, True, False), backend(MMA))
        shared = [each for each in kernel.scratch if each.space is Space.SHARED]
        assert made.lanes == kernel.lanes
        sides = sides_of(step.fused)
        assert sides is not None
        taken = sum(each.size.constant * each.dtype.size for each in shared)
        assert shared_bytes(sides, made) == taken > 0


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_barrier_is_a_race(
    number: int, stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Products.barrier

    def all_but_one(self: Products, *running: int) -> None:
        barriers.append(self)
        if len(barriers) % 2 != 1 - number:
            own(self, *running)

    barriers: list[Products] = []
    monkeypatch.setattr(Products, "barrier", all_but_one)
    knobs = as_knobs({"stages": stages, "copies": "values"})
    kernel = placed(whole("bfloat16"), backend(), knobs)
    arrays = {b.name: np.zeros(b.size.constant, b.dtype.numpy) for b in kernel.buffers}
    with pytest.raises(VerifyError, match=r"lane \d+ (reads|writes) s\d\[\d+\], which lane \d+"):
        interpreter.run(expand(kernel), arrays, {})


def banded(m: int, n: int, band: int) -> Kernel:
    """A product of 56 steps in blocks of 8 x 8, walked in bands of so many rows of them."""
    cx = lm.Graph()
    a, b = cx.tensor((m, 56), lm.bfloat16, "a"), cx.tensor((56, n), lm.bfloat16, "b")
    (a @ b).output("y")
    (step,) = lower_by_stages(cx.graph(), backend()).partition.steps
    assert isinstance(step, NestStep)
    tiling, _ = backend().schedules.explored(step, None, ())
    assert isinstance(tiling, ProductTiling)
    made = replace(tiling, rows=8, columns=8, tile=(4, 4), deep=8, buffers=2, band=band)
    return place_blocks(step.fused, made).kernel


@pytest.mark.parametrize(
    ("meaning", "band"),
    long_rows([*product_of(MEANINGS, (1, 2, 4))], (("tiles", 2), ("tiles", 4))),
)
def test_bands_have_all_blocks(meaning: str, band: int) -> None:
    """Edges divide neither rows nor columns."""
    m, n = 30, 21
    kernel = banded(m, n, band)
    arrays = given_to(kernel)
    a, b = (arrays[buffer.name].astype(np.float64) for buffer in kernel.buffers[:2])
    MEANINGS[meaning](kernel, arrays)
    found = arrays[kernel.buffers[2].name].astype(np.float64).reshape(m, n)
    expected = (a.reshape(m, 56) @ b.reshape(56, n)).astype("f4").astype("bfloat16")
    np.testing.assert_array_equal(found, expected.astype(np.float64))


def test_bands_are_near_each_other() -> None:
    """The first chunks of a band are of as many rows of blocks, and of few columns."""
    kernel = banded(64, 64, 4)
    (grid,) = kernel.grid
    stores = [each for each in kernel.statements() if isinstance(each, Store)]
    last = next(each for each in stores if each.buffer == kernel.buffers[2].name)
    symbols = dict.fromkeys((s.name for s in last.offset.symbols()), 0)
    places = [last.offset.evaluate({**symbols, grid.axis.name: n}) for n in range(64)]
    blocks = [(place // 64 // 8, place % 64 // 8) for place in places]
    assert blocks[:8] == [(row, column) for column in (0, 1) for row in range(4)]
    assert sorted(blocks) == [(row, column) for row in range(8) for column in range(8)]


def test_bands_are_offered_where_they_divide() -> None:
    knobs = as_knobs({"blocks": "16x32 by 8x16", "band": 4})
    with pytest.raises(KnobError, match="knob band=4 is not legal here; take one of 1, 2"):
        placed(whole("bfloat16"), backend(), knobs)


@pytest.mark.parametrize("fault", mostly_long(FAULTS, 3))
def test_faults_of_rings_are_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    kernel = placed(whole("bfloat16"), backend(), ring_of(3, MADE_UP))
    with pytest.raises((VerifyError, AssertionError), match=r"put a barrier between|wrong"):
        assert is_right(kernel, "lanes"), "wrong"


def test_what_cannot_be_copied_is_refused() -> None:
    kernel = placed(whole("bfloat16"), backend(), ring_of(2, MADE_UP))
    rules: dict[str, Change] = {
        "copy 4, 8, 16 bytes at once": lambda x: replace(x, count=3),
        "is no multiple of 8 elements": lambda x: replace(x, offset=x.offset + 2),
        "copy operands to shared memory": lambda x: replace(x, source=x.buffer),
    }
    for rule, change in rules.items():
        body = changed(kernel.body, lambda x, c=change: c(x) if isinstance(x, Copy) else x)
        with pytest.raises(VerifyError, match=rule):
            verify(replace(kernel, body=body))
    rule = "b0 starts anywhere; copy its elements through registers"
    for made, check in ((kernel, verify), (expand(kernel), verify_expanded)):
        check(made)
        anywhere = tuple(replace(buffer, is_aligned=False) for buffer in made.buffers)
        with pytest.raises(VerifyError, match=rule):
            check(replace(made, buffers=anywhere))


def test_words_in_another_order_give_another_product() -> None:
    kernel = placed(case("product").graph, backend())
    rng = np.random.default_rng(0)
    given = {b.name: rng.standard_normal(b.size.constant).astype("f4") for b in kernel.buffers}

    def run(change: Change) -> Any:
        arrays = {name: x.copy() for name, x in given.items()}
        expanded = expand(kernel)
        interpreter.run(replace(expanded, body=changed(expanded.body, change)), arrays, {})
        return arrays[kernel.buffers[2].name]

    def turned(each: Any) -> Any:
        return replace(each, a=each.a[::-1]) if isinstance(each, ir.Multiply) else each

    tile_interpreter.run(kernel, given, {})
    np.testing.assert_array_equal(run(lambda each: each), given[kernel.buffers[2].name])
    assert not np.array_equal(run(turned), given[kernel.buffers[2].name])


def test_what_no_dot_takes_is_refused() -> None:
    kernel = placed(case("whole blocks").graph, backend(), ALONE)
    verify(kernel)

    def of(kind: type, holds: Callable[[Any], bool], **fields: Any) -> Change:
        return lambda x: replace(x, **fields) if isinstance(x, kind) and holds(x) else x

    (load, *_) = [x for x in kernel.statements() if isinstance(x, Contract)]
    other = replace(MADE_UP_F32, name="other")
    rules = {
        "takes blocks of its own, as lanes hold them": of(Contract, bool, dot=other),
        "it takes one step, of its 4 positions alone": of(Loop, lambda x: bool(x.part), unroll=2),
        "no block of one dot": of(
            Loop, lambda x: x.part is not None and x.part.side == "n", part=Part(MADE_UP_F32, "m")
        ),
    }
    assert load.dot is MADE_UP_F32
    for rule, change in rules.items():
        with pytest.raises(VerifyError, match=rule):
            verify(replace(kernel, body=changed(kernel.body, change)))


def test_what_lanes_do_not_hold_is_refused() -> None:
    expanded = expand(placed(case("whole blocks").graph, backend(), ALONE))
    verify_expanded(expanded)
    rules: dict[str, Change] = {
        "a lane holds 4 registers of a, got 3": lambda x: replace(x, a=x.a[1:]),
        "4 results are added to, 3 come out": lambda x: replace(x, outs=x.outs[1:]),
        "a lane holds 2 registers of a, got 4": lambda x: replace(x, dot=MADE_UP[0]),
    }
    for rule, change in rules.items():
        body = changed(expanded.body, lambda x, c=change: c(x) if isinstance(x, ir.Multiply) else x)
        with pytest.raises(VerifyError, match=rule):
            verify_expanded(replace(expanded, body=body))


def test_lanes_that_multiply_alone_are_found() -> None:
    """Under a condition that differs between lanes some never come."""
    expanded = expand(placed(case("whole blocks").graph, backend(), ALONE))
    lane, count = expanded.lane, 10**6
    assert lane is not None
    half = ir.Value(count, ir.CONDITION)
    test = ir.Apply(half, "lt", (lane, ir.Constant(ir.INDEX, np.int64(2).tobytes())))

    def alone(each: Any) -> Any:
        return ir.If(half, (), (each,)) if isinstance(each, ir.Multiply) else each

    body = (test, *changed(expanded.body, alone))
    with pytest.raises(VerifyError, match="some lanes may meet in it and others not"):
        verify_expanded(replace(expanded, body=body))
