"""Products of factors that stay in shared memory, with sums in lanes or in tensor memory, by both
meanings; and what is wrong in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import VerifyError
from luminal.compiler.compile import lower_by_stages
from luminal.expand import interpreter, ir
from luminal.expand.expand import expand
from luminal.expand.fold import constant
from luminal.expand.ir import CONDITION, INDEX
from luminal.expand.verify import verify
from luminal.hlir.graph import Graph
from luminal.kernel import tile_interpreter
from luminal.kernel.boxes import Send, Tensor
from luminal.kernel.knobs import as_knobs
from luminal.kernel.tile_ir import Batch, Kernel
from luminal.program.steps import NestStep
from tests.backends.groups.matrix_backend import dots_of, from_memory, in_tensor
from tests.long_share import long_but, long_rows, mostly_long

M, K, N = 14, 104, 24
RING = {"dot": "made.memory.bf16", "blocks": "16x16 by 8x16", "deep": 32}


def product(along_sum: bool, rows: int) -> Graph:
    cx = lm.Graph()
    a = cx.tensor((rows, K), lm.bfloat16, "a")
    b = cx.tensor((N, K) if along_sum else (K, N), lm.bfloat16, "b")
    (a @ (b.mT if along_sum else b)).cast(lm.float32).output("y")
    return cx.graph()


def ring(along_sum: bool = False, sums: str = "memory", copies: str = "lanes") -> Kernel:
    """Four blocks in a ring, of which one batch of products may still read one; of boxes three, so
    that there are steps enough to send over them; "shared" boxes are brought by two groups.
    """
    rows = 2 * M if copies == "shared" else M
    copies = "boxes" if copies == "shared" else copies
    made, stages = in_tensor() if sums == "tensor" else from_memory(), 4 - (copies == "boxes")
    (step,) = lower_by_stages(product(along_sum, rows), made).partition.steps
    assert isinstance(step, NestStep)
    others = {"dot": f"made.{sums}.bf16", "copies": copies, "stages": stages}
    return made.schedules.place(step, as_knobs({**RING, **others})).kernel


def run(kernel: Kernel, expanded: ir.Kernel | None, along_sum: bool = False) -> None:
    """Raises AssertionError where the product is wrong."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        buffer.name: rng.integers(-3, 4, buffer.size.constant).astype(buffer.dtype.numpy)
        for buffer in kernel.buffers
    }
    a, b = (arrays[buffer.name].astype(np.float64) for buffer in kernel.buffers[:2])
    if expanded is None:
        tile_interpreter.run(kernel, arrays, {})
    else:
        interpreter.run(expanded, arrays, {})
    b = b.reshape(N, K).T if along_sum else b.reshape(K, N)
    found = arrays[kernel.buffers[2].name].reshape(-1, N)
    np.testing.assert_array_equal(found.astype(np.float64), a.reshape(-1, K) @ b)


@pytest.mark.parametrize(
    ("sums", "copies"),
    long_rows(
        [("memory", "lanes"), ("memory", "boxes"), ("tensor", "lanes")],
        [("memory", "boxes"), ("tensor", "lanes")],
    ),
)
@pytest.mark.parametrize("along_sum", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_ring_by_both_meanings(along_sum: bool, sums: str, copies: str) -> None:
    check_ring(along_sum, sums, copies)


@pytest.mark.parametrize("along_sum", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_shared_ring_by_both_meanings(along_sum: bool) -> None:
    check_ring(along_sum, "memory", "shared")


def check_ring(along_sum: bool, sums: str, copies: str) -> None:
    """Sees that a ring is as it was asked for, and right by both interpreters."""
    kernel = ring(along_sum, sums, copies)
    sent = [s for s in kernel.statements() if isinstance(s, Send)]
    assert bool(sent) == (copies in ("boxes", "shared"))
    assert any(send.room is not None for send in sent) == (copies == "shared")
    (dot,) = dots_of(kernel)
    assert dot.is_from_memory
    assert dot.in_tensor is (sums == "tensor")
    expanded = expand(kernel)
    verify(expanded)
    kinds = ir.MultiplyLeft | ir.Accumulate
    factors = {s.b.turned for s in expanded.statements() if isinstance(s, kinds)}
    assert factors == {not along_sum}
    run(kernel, None, along_sum)
    run(kernel, expanded, along_sum)


Changed = Callable[[Any], Any]
"""A statement, another one instead, or None for none."""


def changed(body: tuple[Any, ...], change: Changed) -> tuple[Any, ...]:
    inside = (
        replace(each, body=changed(each.body, change)) if hasattr(each, "body") else each
        for each in body
    )
    return tuple(after for each in inside if (after := change(each)) is not None)


def without(kind: type, *of: Batch) -> Changed:
    return lambda s: None if isinstance(s, kind) and (not of or s.of in of) else s


def waits_less(statement: Any) -> Any:
    """The batch that reads what is copied over next may be running."""
    is_wait = isinstance(statement, ir.Await) and statement.of is Batch.PRODUCTS
    return replace(statement, younger=statement.younger + 1) if is_wait else statement


def of_factor(**other: Any) -> Changed:
    def change(statement: Any) -> Any:
        if not isinstance(statement, ir.MultiplyLeft | ir.Accumulate):
            return statement
        moved = other.get("by", 0) + statement.b.distance
        turned = other.get("turned", statement.b.turned)
        return replace(statement, b=replace(statement.b, distance=moved, turned=turned))

    return change


FAULTS: dict[str, tuple[Changed, str | None]] = {
    "results that nobody waits for": (without(ir.Await, Batch.PRODUCTS), None),
    "products that are never committed": (without(ir.Commit, Batch.PRODUCTS), None),
    "a wait too short": (waits_less, "which is running; await it before"),
    "products without a fence": (without(ir.Begin), "put a Begin before it"),
    "copies that are not published": (without(ir.Publish), "put a Publish before the Barrier"),
    "a missing barrier": (without(ir.Barrier), "put a barrier between them"),
    "copies that nobody waits for": (without(ir.Await, Batch.COPIES), None),
    "another block": (of_factor(by=8), None),
    "a factor that is not turned": (of_factor(turned=False), None),
}


def check_found(kernel: Kernel, change: Changed, message: str | None) -> None:
    """Sees that a kernel whose expanded IR was changed is refused or wrong."""
    expanded = expand(kernel)
    wrong = replace(expanded, body=changed(expanded.body, change))
    assert wrong.body != expanded.body
    with pytest.raises((VerifyError, AssertionError), match=message):
        run(kernel, wrong)


@pytest.mark.parametrize("fault", mostly_long(FAULTS, 4))
def test_faults_are_found(fault: str) -> None:
    check_found(ring(), *FAULTS[fault])


def of_sums(kind: type, **other: Any) -> Changed:
    return lambda s: replace(s, **other) if isinstance(s, kind) else s


IN_TENSOR: dict[str, tuple[Changed, str | None]] = {
    **{name: FAULTS[name] for name in FAULTS if name != "products without a fence"},
    "results that nobody waits for": (
        lambda s: None if s == ir.Await(0, Batch.PRODUCTS) else s, "is written by"),
    "sums that are not begun": (of_sums(ir.Accumulate, adds=constant(CONDITION, 1)), None),
    "sums that are begun again": (of_sums(ir.Accumulate, adds=constant(CONDITION, 0)), None),
    "another column": (of_sums(ir.LoadSums, distance=1), "are not among"),
    "columns of another block": (of_sums(ir.LoadSums, address=constant(INDEX, 0)), None),
}  # fmt: skip


@pytest.mark.parametrize("fault", long_but(IN_TENSOR, ("results that nobody waits for",)))
def test_faults_in_tensor_memory_are_found(fault: str) -> None:
    check_found(ring(sums="tensor"), *IN_TENSOR[fault])


def of_box(**other: Any) -> Changed:
    """Boxes of one factor with other fields of their tensor."""

    def change(statement: Any) -> Any:
        if not isinstance(statement, ir.CopyBox) or statement.buffer != "s1":
            return statement
        return replace(statement, tensor=replace(statement.tensor, **other))

    return change


def of_phase(step: ir.Phase, number: int | None) -> Changed:
    """Another number, or nothing of this kind."""

    def change(statement: Any) -> Any:
        if not isinstance(statement, ir.AtPhase) or statement.step is not step:
            return statement
        if number is None:
            return None
        return replace(statement, number=ir.Constant(ir.INDEX, np.int64(number).tobytes()))

    return change


BOX_FAULTS: dict[str, tuple[Changed, str | None]] = {
    "another box": (of_box(box=(16, 16)), "bytes are expected"),
    "another stride": (of_box(strides=(1, 32)), None),
    "another extent": (of_box(extents=(24, 40)), None),
    "too many bytes": (of_phase(ir.Phase.EXPECT, 2064), "it hangs"),
    "no bytes at all": (of_phase(ir.Phase.EXPECT, None), "None bytes are expected"),
    "another parity": (of_phase(ir.Phase.AWAIT, 1), None),
    "boxes that nobody awaits": (of_phase(ir.Phase.AWAIT, None), None),
    "barriers that do not begin": (of_phase(ir.Phase.BEGIN, None), "has not begun"),
    "barriers that are not published": (without(ir.Publish), "put a Publish behind"),
    "a missing barrier": (without(ir.Barrier), None),
    "a wait too short": (waits_less, "which is running; await it before"),
}


@pytest.mark.parametrize("fault", BOX_FAULTS)
def test_faults_of_boxes_are_found(fault: str) -> None:
    check_found(ring(copies="boxes"), *BOX_FAULTS[fault])


ROOM_FAULTS: dict[str, tuple[Changed, str | None]] = {
    "a room that nobody frees": (of_phase(ir.Phase.FREE, None), "it hangs"),
    "another parity of a room": (of_phase(ir.Phase.ENTER, 1), None),
    "one part of what is shared": (
        lambda s: replace(s, parts=1) if isinstance(s, ir.CopyBox) else s, "bytes are expected"),
    "rooms that do not begin": (
        lambda s: None if isinstance(s, ir.AtPhase) and s.buffer == "s3"
        and s.step is ir.Phase.BEGIN else s, "has not begun"),
    "a wait too short": (waits_less, "which is running; await it before"),
}  # fmt: skip


@pytest.mark.parametrize("fault", long_but(ROOM_FAULTS, ("a room that nobody frees",)))
def test_faults_of_rooms_are_found(fault: str) -> None:
    """By a group alone, which stands for all of its cluster."""
    check_found(ring(copies="shared"), *ROOM_FAULTS[fault])


def test_a_sum_of_nothing_in_tensor_memory_is_0() -> None:
    """No product has begun it."""
    cx, made = lm.Graph(), in_tensor()
    steps = cx.dim("k", 0, 64)
    a = cx.tensor((16, steps), lm.bfloat16, "a")
    b = cx.tensor((steps, 16), lm.bfloat16, "b")
    (a @ b).cast(lm.float32).output("y")
    (step,) = lower_by_stages(cx.graph(), made).partition.steps
    assert isinstance(step, NestStep)
    kernel = made.schedules.place(step, as_knobs({"dot": "made.tensor.bf16"})).kernel
    for count in (0, 24):
        a, b = (np.ones(shape, lm.bfloat16.numpy) for shape in ((16, count), (count, 16)))
        for by in (tile_interpreter.run, lambda k, x, p: interpreter.run(expand(k), x, p)):
            found = np.full((16, 16), 7, np.float32)
            names = [buffer.name for buffer in kernel.buffers]
            by(kernel, dict(zip(names, (a, b, found), strict=True)), {kernel.params[0].name: count})
            np.testing.assert_array_equal(found, count)


def test_what_no_device_can_be_told_of_has_a_reason() -> None:
    """By the rules of the driver, and those of swizzles."""
    refusals = {
        Tensor("b0", 2, (64, 64), (1, 70), (64, 8), 128): "multiples of 16",
        Tensor("b0", 2, (64, 64), (2, 128), (64, 8), 128): "multiples of 16",
        Tensor("b0", 2, (64, 600), (1, 64), (64, 512), 128): "256 elements may be",
        Tensor("b0", 2, (8,) * 6, (1, 8, 64, 512, 4096, 32768), (64, 8, 1, 1, 1, 1), 128): "6 dim",
        Tensor("b0", 2, (64, 64), (1, 64), (32, 8), 128): "no tile of a swizzle",
        Tensor("b0", 2, (64, 0), (1, 64), (64, 8), 128): "are none, or too many",
    }
    for tensor, words in refusals.items():
        assert tensor.refusal is not None
        assert words in tensor.refusal


def test_another_swizzle_is_found() -> None:
    kernel = ring(True)
    expanded = expand(kernel)
    widths = {64: 32, 32: 64}
    shared = tuple(replace(b, swizzle=widths[b.swizzle]) for b in expanded.shared)
    with pytest.raises((VerifyError, AssertionError)):
        run(kernel, replace(expanded, shared=shared), True)
