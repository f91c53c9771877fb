"""The verifier of expanded IR: right kernels pass, a planted fault of each kind is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from luminal.base import dtypes
from luminal.base.errors import CompileError, VerifyError
from luminal.expand import interpreter
from luminal.expand.expand import expand
from luminal.expand.fold import constant
from luminal.expand.ir import (
    CONDITION,
    INDEX,
    Apply,
    Carry,
    Choice,
    Constant,
    Fetch,
    If,
    Kernel,
    Load,
    Loop,
    Operand,
    Param,
    Scratch,
    Statement,
    Store,
    Type,
    Value,
)
from luminal.expand.text import headline, to_text
from luminal.expand.verify import verify
from luminal.hlir.attributes import CustomKernel
from luminal.kernel import tile_ir
from luminal.kernel.tile_ir import Buffer, Role
from luminal.shape.expression import axis, const, symbol
from tests.unit.kernel.row_sum import row_sum

F32, I32 = Type(dtypes.float32), Type(dtypes.int32)
BUFFERS = (
    Buffer("x", dtypes.float32, const(8)),
    Buffer("y", dtypes.float32, const(8), role=Role.OUT),
)
ZERO, ONE, TWO, EIGHT = (constant(INDEX, n) for n in (0, 1, 2, 8))
TRUE = constant(CONDITION, True)
AT, X, STEP, PART, SUM, AFTER, CHOSEN, OTHER = (
    Value(k, INDEX if k in (0, 2) else F32) for k in range(8)
)
LOAD = Load(X, "x", AT)
ADD = Apply(SUM, "add", (PART, X))
LOOP = Loop(STEP, ZERO, TWO, 1, (Carry(AFTER, constant(F32, 0.0), PART, SUM),), (ADD,))
IF = If(TRUE, (Choice(CHOSEN, AFTER, X),), ())
STORE = Store("y", AT, CHOSEN)
N = symbol("n", 1, 9)


def kernel(*body: Statement, **changes: object) -> Kernel:
    """y = 2 * x, with a loop and a choice; or another body."""
    body = body or (LOAD, LOOP, IF, STORE)
    right = Kernel((), BUFFERS, (), const(0), const(8), (), AT, body)
    return replace(right, **changes)


def applied(op: str, *args: Operand, out: Type = F32) -> Kernel:
    return kernel(LOAD, Apply(Value(7, out), op, args))


def with_loop(**changes: object) -> Kernel:
    return kernel(LOAD, replace(LOOP, **changes))


def test_a_right_kernel_passes_and_runs() -> None:
    verify(kernel())
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    interpreter.run(kernel(), {"x": x, "y": y}, {})
    np.testing.assert_array_equal(y, 2 * x)


HALF, FIRST = Value(7, Type(dtypes.float16)), Value(8, INDEX)
FAULTS = {
    "defined-twice": (kernel(LOAD, LOAD), "%1 is defined twice"),
    "not-defined": (kernel(STORE), "%6 is not defined before"),
    "out-of-scope": (kernel(LOAD, LOOP, Store("y", AT, SUM)), "%4 is defined elsewhere"),
    "other-type": (kernel(LOAD, Store("y", AT, Value(1, I32))), "%1 is defined elsewhere"),
    "storage-dtype": (kernel(Load(HALF, "x", AT)), "f32, not f16"),
    "held-as-f16": (applied("cast", X, out=HALF.type), "hold it as u16 words"),
    "lanes": (applied("splat", X, out=Type(dtypes.float32, 3)), "take a power of two"),
    "constant-bytes": (applied("add", X, Constant(F32, bytes(8))), "has 8 bytes, not 4"),
    "no-operation": (applied("hypot", X, X), "no operation hypot"),
    "arity": (applied("add", X), "add takes 2 operands, got 1"),
    "kind": (applied("shl", X, X), "shl takes int, uint, got f32"),
    "mixed-types": (applied("add", X, ONE), "1 is i64, expected f32"),
    "result-type": (applied("lt", X, X), "%7 is f32, expected bool"),
    "select-mask": (applied("select", X, X, X), "%1 is f32, expected bool"),
    "to-bool": (applied("cast", X, out=CONDITION), "nothing is cast to bool"),
    "bitcast-size": (applied("bitcast", X, out=INDEX), "bitcast keeps the size"),
    "cast-lanes": (applied("cast", X, out=Type(dtypes.int32, 4)), "cast keeps the lanes"),
    "splat-type": (applied("splat", ONE), "1 is i64, expected f32"),
    "divisor": (applied("quotient", AT, ZERO, out=INDEX), "nothing is divided by 0"),
    "shift": (applied("shl", AT, constant(INDEX, 64), out=INDEX), "i64 is not shifted by 64"),
    "lane": (applied("extract", X, ONE), "f32 has no lane 1"),
    "no-buffer": (kernel(Load(X, "z", AT)), "there is no buffer z; the kernel has x, y"),
    "same-name": (kernel(buffers=(BUFFERS[0], BUFFERS[0])), "two buffers are named x"),
    "element-type": (kernel(Load(Value(1, I32), "x", AT)), "accessed as f32, not i32"),
    "address": (kernel(LOAD, Load(OTHER, "x", X)), "the address is f32"),
    "mask": (kernel(Load(X, "x", AT, ONE)), "1 is i64, expected bool"),
    "outside": (kernel(Load(X, "x", EIGHT)), "8 in 8..8 is outside x"),
    "before": (kernel(Load(X, "x", constant(INDEX, -1))), "-1 in -1..-1 is outside x"),
    "to-an-input": (kernel(LOAD, Store("x", AT, X)), "x is an input"),
    "step": (with_loop(step=0), "steps of 0"),
    "bound": (with_loop(stop=X), "%1 is f32, expected i64"),
    "index": (with_loop(index=OTHER), "it counts in f32; take i64, or i32"),
    "init": (with_loop(carries=(replace(LOOP.carries[0], init=ONE),)), "1 is i64, expected f32"),
    "next": (with_loop(carries=(replace(LOOP.carries[0], next=STEP),)), "%2 is i64, expected f32"),
    "condition": (kernel(LOAD, If(X, (), ())), "%1 is f32, expected bool"),
    "otherwise": (kernel(LOAD, If(TRUE, (Choice(OTHER, X, ONE),), ())), "1 is i64"),
    "then": (kernel(LOAD, If(TRUE, (Choice(OTHER, ONE, X),), ())), "1 is i64"),
    "setup": (kernel(setup=(LOAD,)), "the setup only computes"),
    "parameter": (kernel(params=(Param(N, X),)), "%1 is f32, expected i64"),
    "scratch": (
        kernel(scratch=(Scratch(replace(BUFFERS[0], name="s"), X),)),
        "`scratch s`: %1 is not defined before",
    ),
    "chunk": (kernel(chunk=OTHER), "%7 is f32, expected i64"),
    "fetched-early": (
        kernel(first=FIRST, early=(Fetch("x", FIRST, 0),)),
        "an earlier launch may be writing x",
    ),
    "loaded-early": (
        kernel(first=FIRST, early=(If(TRUE, (), (Load(Value(9, F32), "x", FIRST),)),)),
        "earlier launches have not ended here",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named(name: str) -> None:
    wrong, message = FAULTS[name]
    with pytest.raises(VerifyError) as caught:
        verify(wrong)
    assert message in str(caught.value)


def test_the_statement_that_holds_a_fault_is_named() -> None:
    """Also where it stands inside another, and after a right one."""
    wrong = Store("y", AT, OTHER)
    for body in ((LOAD, LOOP, IF, wrong), (LOAD, replace(LOOP, body=(ADD, wrong)), IF, STORE)):
        with pytest.raises(VerifyError) as caught:
            verify(kernel(*body))
        assert f"`{headline(wrong)}`: %7 is not defined before" in str(caught.value)


def test_ranges_follow_parameters_and_loops() -> None:
    """x[8 * n + i] is beyond 8 elements for every n from 1 on; x[n + i - 9] may be inside."""
    n, far, near = Value(20, INDEX), Value(21, INDEX), Value(22, INDEX)
    params = (Param(N, n),)
    scaled = Apply(far, "mul", (n, EIGHT))
    loop = Loop(STEP, ZERO, TWO, 1, (), (Apply(near, "add", (far, STEP)), Load(X, "x", near)))
    with pytest.raises(VerifyError, match=r"%22 in 8\.\.73 is outside x"):
        verify(kernel(scaled, loop, params=params))
    verify(kernel(replace(scaled, op="sub"), loop, params=params))


def test_a_shift_by_what_no_shift_takes_may_give_anything() -> None:
    count, far = Value(20, INDEX), Value(21, INDEX)
    minus = Apply(count, "sub", (ZERO, ONE))
    verify(kernel(minus, Apply(far, "shl", (AT, count)), Load(X, "x", far)))


RUNTIME = {
    "outside": (kernel(Load(X, "x", EIGHT)), r"8 is outside x\[8\]"),
    "divisor": (applied("quotient", ONE, AT, out=INDEX), "takes no"),
    "shift": (applied("shr", ONE, constant(INDEX, -1), out=INDEX), "takes no"),
    "converted": (applied("cast", constant(F32, 3e9), out=I32), "takes no"),
    "lanes-meet": (
        kernel(
            Store("y", constant(Type(dtypes.int64, 2), 1), constant(Type(dtypes.float32, 2), 1.0))
        ),
        "two lanes meet",
    ),
}


@pytest.mark.parametrize("name", RUNTIME)
def test_the_interpreter_checks_what_renderers_take_for_granted(name: str) -> None:
    wrong, message = RUNTIME[name]
    arrays = {"x": np.zeros(8, np.float32), "y": np.zeros(8, np.float32)}
    with pytest.raises(VerifyError, match=message):
        interpreter.run(wrong, arrays, {})


def test_the_interpreter_takes_the_buffers_of_the_kernel() -> None:
    with pytest.raises(VerifyError, match=r"buffer x: int64\[8\] given.*contiguous f32\[8\]"):
        interpreter.run(kernel(), {"x": np.arange(8), "y": np.zeros(8, np.float32)}, {})


def test_code_by_hand_is_refused() -> None:
    custom = CustomKernel("mine", lambda x, out: None)
    shapes = (("x", (const(8),)),), (("y", (const(8),)),)
    call = tile_ir.Call(custom, *shapes, axis("c", 1), const(1))
    with pytest.raises(CompileError, match="'mine' is code written by hand"):
        expand(tile_ir.Kernel((), BUFFERS, (), (), (call,)))


def test_equal_kernels_have_equal_texts() -> None:
    first, again = expand(row_sum()), expand(row_sum())
    assert to_text(first) == to_text(again)
    assert "for %5: i64 = 0, < %4, + 16:" in to_text(first)
