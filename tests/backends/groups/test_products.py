"""Products by groups in blocks: right for every factor, shape and choice, and free of races."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import VerifyError
from luminal.compiler import compile
from luminal.compiler.compile import lower_by_stages
from luminal.kernel.knobs import KnobError, as_knobs
from luminal.kernel.product_blocks import Products
from luminal.kernel.product_sides import sides_of
from luminal.kernel.product_tiling import ProductTiling, shared_bytes
from luminal.kernel.tile_ir import Space
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.shape.expression import TRUE
from tests.backends.cpu.schedule.knob_choices import sample
from tests.backends.groups.both_meanings import backend
from tests.backends.groups.product_graphs import GRAPHS, case, chosen, products, the_step
from tests.backends.on_device import check_case, compiled_on
from tests.long_share import long_but, mostly_long

SHORT = ("rows chosen", "bf16")


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
            assert tiling.buffers == stages
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
