"""Products by groups in blocks: right for every factor, shape and choice, and free of races."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
import luminal.nn.functional as f
from luminal.backends.backend import Backend
from luminal.base.errors import VerifyError
from luminal.compiler import compile
from luminal.compiler.assemble import text_key
from luminal.compiler.compile import Stages, lower_by_stages
from luminal.kernel.knobs import KnobError, as_knobs
from luminal.kernel.product_blocks import Products, ProductTiling, shared_bytes
from luminal.kernel.product_sides import sides_of
from luminal.kernel.tile_ir import Space
from luminal.kernel.tile_text import to_text
from luminal.program.steps import NestStep
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.shape.expression import TRUE
from tests.backends.cpu.schedule.knob_choices import Choice, placed_choices, sample
from tests.backends.groups.both_meanings import backend
from tests.backends.on_device import check_case, compiled_on
from tests.fuzz.graphs import Case
from tests.long_share import long_but, mostly_long

Fn = Callable[..., Any]
F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
GRAPHS: dict[str, tuple[Fn, tuple[tuple[Any, ...], ...], Any]] = {
    "product": (lambda a, b: a @ b, ((9, 11), (11, 13)), np.float32),
    "whole blocks": (lambda a, b: a @ b, ((8, 16), (16, 16)), np.float32),
    "both turned": (lambda a, b: a.transpose(0, 1) @ b.transpose(0, 1), ((11, 9), (13, 11)),
                    np.float32),
    "linear": (lambda a, b, c, d: (a @ b.transpose(0, 1) + c).relu() + d,
               ((5, 12), (7, 12), (7,), (5, 7)), np.float32),
    "batched": (lambda a, b: a @ b, ((3, 5, 9), (3, 9, 6)), np.float32),
    "one matrix for all": (lambda a, b: a @ b, ((3, 5, 9), (9, 6)), np.float32),
    "gate and up": (lambda x, g, u: (x @ g).silu() * (x @ u), ((5, 9), (9, 6), (9, 6)), np.float32),
    "factors computed": (lambda a, b: a.exp() @ (b.tril() * 2), ((9, 9), (9, 9)), np.float32),
    "rows chosen": (lambda i, a, b: a[i.cast("i64").abs() % 4] @ b, ((6,), (4, 9), (9, 5)),
                    np.float32),
    "convolution": (lambda x, w: f.conv2d(x, w, padding=1), ((1, 2, 5, 6), (5, 2, 3, 3)),
                    np.float32),
    "strided": (lambda x, w: f.conv2d(x, w, stride=2), ((2, 2, 7, 7), (4, 2, 3, 3)), np.float32),
    "f16": (lambda a, b: (a.float() @ b.float()).half(), ((5, 9), (9, 6)), F16),
    "bf16": (lambda a, b: a @ b, ((5, 9), (9, 6)), BF16),
    "bf16 by f32": (lambda a, b: a.float() @ b.float().tril().exp(), ((9, 9), (9, 9)), BF16),
    "f64": (lambda a, b: a @ b, ((5, 9), (9, 6)), np.float64),
    "i32": (lambda a, b: a @ b, ((5, 9), (9, 6)), np.int32),
    "dims": (lambda a, b: a @ b, (("s", 9), (9, "s")), np.float32),
    "a sum over a dim": (lambda a, b: a @ b, ((5, "s"), ("s", 6)), np.float32),
}  # fmt: skip


SHORT = ("both turned", "linear", "rows chosen", "bf16", "dims")


def case(name: str) -> Case:
    """The graph of that name with random inputs; of floats some are infinite or NaN."""
    fn, shapes, dtype = GRAPHS[name]
    cx = lm.Graph()
    dims = {"s": 11} if any("s" in shape for shape in shapes) else {}
    named = {name: cx.dim(name, 0, 64) for name in dims}
    rng = np.random.default_rng(3)
    inputs, tensors = {}, []
    for k, shape in enumerate(shapes):
        extents = tuple(named.get(n, n) for n in shape)
        tensors.append(cx.tensor(extents, name=f"x{k}", dtype=np.dtype(dtype).name))
        array = (rng.standard_normal([dims.get(n, n) for n in shape]) * 4).astype(dtype)
        for special in (np.nan, np.inf) if array.size and array.dtype == np.float32 else ():
            array.flat[rng.integers(array.size)] = special
        inputs[f"x{k}"] = array
    fn(*tensors).output("y")
    return Case(cx.graph(), inputs, dims, {})


def products(stages: Stages, backend: Backend) -> list[Choice]:
    """Every choice of the kernels that may multiply in blocks, all placed and verified."""
    found = []
    for step in stages.partition.steps:
        if isinstance(step, NestStep) and sides_of(step.fused) is not None:
            texts = placed_choices(step, backend)
            found += [(text_key(texts[()]), knobs) for knobs in texts]
    return found


def check(name: str, most: int) -> None:
    run = case(name)
    stages = lower_by_stages(run.graph, backend())
    choices = products(stages, backend())
    assert choices
    for key, knobs in sample(name, choices, most):
        program = compile.reschedule(stages, backend(), {key: knobs}).program
        exe = Executable(run.graph, (Variant({}, backend().runner(program)),))
        try:
            check_case(exe, run, 1.0)
        except Exception as error:
            error.add_note(f"{name} with {knobs}")
            raise


@pytest.mark.parametrize("name", long_but(GRAPHS, SHORT))
def test_a_choice_of_blocks(name: str) -> None:
    check(name, 1)


@pytest.mark.long
@pytest.mark.parametrize("name", GRAPHS)
def test_more_choices_of_blocks(name: str) -> None:
    check(name, 8)


def test_dims_from_nothing_on() -> None:
    cx = lm.Graph()
    m, k, n = (cx.dim(name, 0, 64) for name in "mkn")
    (cx.tensor((m, k), name="a") @ cx.tensor((k, n), name="b") + 1).output("y")
    exe = compiled_on(backend(), cx.graph())
    for m, k, n in ((0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1), (17, 9, 16), (2, 33, 5)):
        given = {"a": np.full((m, k), 2, np.float32), "b": np.ones((k, n), np.float32)}
        np.testing.assert_array_equal(exe(given)["y"], np.full((m, n), 2 * k + 1, np.float32))


def the_step(name: str) -> NestStep:
    """The one kernel of a graph."""
    (step,) = lower_by_stages(case(name).graph, backend()).partition.steps
    assert isinstance(step, NestStep)
    return step


def chosen(name: str, **knobs: Any) -> Executable:
    """The program of one kernel with these knobs."""
    stages = lower_by_stages(case(name).graph, backend())
    step = the_step(name)
    key = text_key(to_text(backend().schedules.place(step).kernel))
    made = compile.reschedule(stages, backend(), {key: as_knobs(knobs)}).program
    return Executable(case(name).graph, (Variant({}, backend().runner(made)),))


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_barrier_is_a_race(
    number: int, stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Products.barrier

    def all_but_one(self: Products) -> None:
        barriers.append(self)
        if len(barriers) % 2 != 1 - number:
            own(self)

    barriers: list[Products] = []
    monkeypatch.setattr(Products, "barrier", all_but_one)
    exe = chosen("product", stages=stages, deep=4)
    with pytest.raises(VerifyError, match=r"lane \d+ (reads|writes) s\d\[\d+\], which lane \d+"):
        exe(case("product").inputs)


def test_a_missing_guard_is_out_of_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Products, "unproved", lambda *_: TRUE)
    with pytest.raises(VerifyError, match=r"is outside b\d"):
        chosen("product")(case("product").inputs)


def test_blocks_that_a_device_has_no_room_for_are_refused() -> None:
    step = the_step("product")
    refused = {
        "512x512 by 8x8": r"its groups have 4096 lanes, the device's 16 at most; take one of",
        "4096x4 by 512x2": r"it takes 65\d+ bytes of shared memory, of which a group has 20480;",
        "4x4 by 4x4": r"others are better by rule; take one of",
        "many": r"it is no block, such as 64x64 by 4x4; take one of",
    }
    for blocks, reason in refused.items():
        with pytest.raises(KnobError, match=f"knob blocks={blocks} is not legal here: {reason}"):
            backend().schedules.place(step, (("blocks", blocks),))
    with pytest.raises(KnobError, match="knob deep=4096 is not legal here; take one of"):
        backend().schedules.place(step, (("deep", 4096),))


def test_the_shared_memory_of_blocks_is_all_that_they_have() -> None:
    """Of one block or two in turns; 16-bit floats as they are or widened."""
    for name, floats in (("product", (32,)), ("both turned", (32,)), ("bf16", (16, 32))):
        step, schedules = the_step(name), backend().schedules
        sides = sides_of(step.fused)
        assert sides is not None
        for stages, bits in product((1, 2), floats):
            knobs = as_knobs({"stages": stages, **({"floats": bits} if len(floats) > 1 else {})})
            tiling, _ = schedules.explored(step, schedules.facts(step), knobs)
            assert isinstance(tiling, ProductTiling)
            assert tiling.stages == stages
            kernel = schedules.place(step, knobs).kernel
            shared = [each for each in kernel.scratch if each.space is Space.SHARED]
            taken = sum(each.size.constant * each.dtype.size for each in shared)
            assert shared_bytes(sides, tiling) == taken > 0


def test_rows_are_read_along_the_sum_by_neighbouring_lanes() -> None:
    for name, deep_first in (("product", (True, False)), ("both turned", (False, True))):
        step, schedules = the_step(name), backend().schedules
        made, _ = schedules.explored(step, schedules.facts(step), ())
        assert isinstance(made, ProductTiling)
        assert made.deep_first == deep_first


@pytest.mark.parametrize("name", mostly_long(["bf16", "f16", "bf16 by f32"], 1))
def test_16_bit_floats_lie_in_shared_memory_as_they_are(name: str) -> None:
    step, schedules, found, sizes = the_step(name), backend().schedules, [], []
    for floats in (32, 16):
        kernel = schedules.place(step, as_knobs({"floats": floats})).kernel
        sizes.append([each.size.constant * each.dtype.size for each in kernel.scratch])
        exe = chosen(name, floats=floats)
        check_case(exe, case(name), 1.0)
        found.append(exe(case(name).inputs)["y"].tobytes())
    assert found[0] == found[1]
    halves = (2, 1) if name == "bf16 by f32" else (2, 2)  # what is computed has 32 bits
    assert [wide // short for wide, short in zip(*sizes, strict=True)] == [*halves]
    with pytest.raises(KnobError, match="knob floats=16 is not legal here; take one of 32"):
        schedules.place(the_step("product"), as_knobs({"floats": 16}))
