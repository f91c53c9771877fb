"""Tile IR: printed form, the verifier's rules, and the interpreter's checks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from luminal.base import dtypes
from luminal.base.dots import BF16_PAIRS, ON_BITS, multiply_add
from luminal.base.errors import VerifyError
from luminal.expand import ir
from luminal.expand.expand import expand
from luminal.expand.interpreter import run as run_expanded
from luminal.expand.ir import Type
from luminal.expand.text import to_text as expanded_text
from luminal.expand.verify import verify as verify_expanded
from luminal.kernel import tile_interpreter
from luminal.kernel.scratch import scratch_offsets
from luminal.kernel.tile_ir import (
    Buffer,
    Carry,
    Contract,
    If,
    Index,
    Kernel,
    Literal,
    Load,
    Loop,
    Map,
    Prefix,
    Reduce,
    Role,
    Space,
    Statement,
    Store,
    Tile,
)
from luminal.kernel.tile_text import to_text
from luminal.kernel.tile_verify import verify
from luminal.shape.expression import TRUE, as_expression, axis, const, opaque, symbol
from tests.unit.kernel.row_sum import (
    BOOL,
    F32,
    I64,
    NEXT,
    READ,
    RESULT,
    ROW,
    TOTAL,
    U8,
    ZERO_TILE,
    J,
    N,
    row_sum,
)

BF16, NEAR = dtypes.bfloat16, axis("near", 2)
PAIR_A, PAIR_B = Tile(11, (NEAR,), BF16), Tile(12, (NEAR,), BF16)


def pair_sum(
    extra: Statement | None = None, stop: int = 2, neighbours: int = 2, apart: int = 1
) -> Kernel:
    """y[0] = x[0] * w[0] + x[apart] * w[1]."""
    inner, after, result = (Tile(n, (), F32) for n in (13, 14, 15))
    body = (
        Load(PAIR_A, "x", NEAR * apart),
        Load(PAIR_B, "w", as_expression(NEAR)),
        *(() if extra is None else (extra,)),
        Contract(after, inner, PAIR_A, PAIR_B, BF16_PAIRS),
    )
    carry = Carry(result, ZERO_TILE, inner, after)
    unroll = 2 // neighbours
    loop = Loop(NEAR, const(0), const(stop), body, (carry,), unroll, neighbours=neighbours)
    return Kernel(
        params=(),
        buffers=(
            Buffer("x", BF16, const(1 + apart)),
            Buffer("w", BF16, const(2)),
            Buffer("y", F32, const(1), role=Role.OUT),
        ),
        scratch=(),
        grid=(),
        body=(
            Literal(ZERO_TILE, np.float32(0).tobytes()),
            loop,
            Store("y", const(0), result),
        ),
    )


def test_text() -> None:
    assert to_text(row_sum()) == (
        "kernel(n in 0..1000) {\n"
        "  in x: f32[n * 4]\n"
        "  out y: f32[4]\n"
        "  grid row in 0..<4\n"
        "  %0: f32[] = literal 0.0 (0x00000000)\n"
        "  for j in 0..<n unroll(2) vector(8):\n"
        "    carry %1: f32[j] = %0 -> %3, after %4: f32[j]\n"
        "    %2: f32[j] = load x[j + n * row]\n"
        "    %3: f32[j] = Add %1 %2\n"
        "  %5: f32[] = reduce Add %4 over j\n"
        "  store y[row] <- %5\n"
        "}"
    )


def test_row_sum_means_the_sum() -> None:
    verify(row_sum())
    x, y = np.arange(4 * 37, dtype=np.float32), np.zeros(4, np.float32)
    tile_interpreter.run(row_sum(), {"x": x, "y": y}, {"n": 37})
    np.testing.assert_array_equal(y, x.reshape(4, 37).sum(1))


def with_loop(*body: Statement, **changes: object) -> Kernel:
    """The row sum with another loop body, or other fields of its loop."""
    kernel = row_sum()
    loop = kernel.body[1]
    assert isinstance(loop, Loop)
    changed = replace(loop, body=body or loop.body, **changes)  # type: ignore[arg-type]
    return replace(kernel, body=(kernel.body[0], changed, *kernel.body[2:]))


def after(*more: Statement) -> Kernel:
    return replace(row_sum(), body=(*row_sum().body, *more))


M = axis("m", 8)
FLAG = Tile(9, (), BOOL)
STRAY = symbol("stray")
AT = opaque("at")
LOAD, ADD = row_sum().body[1].body  # type: ignore[union-attr]

BROKEN = [
    ("not-defined", after(Map(Tile(9, (), F32), "Exp", (Tile(8, (), F32),))), "%8 is not defined"),
    ("twice", after(Literal(ZERO_TILE, bytes(4))), "%0 is defined twice"),
    ("out-of-scope", after(Map(Tile(9, (J,), F32), "Exp", (NEXT,))), "%3 is defined elsewhere"),
    ("axes", with_loop(replace(LOAD, out=Tile(2, (), F32)), ADD), "its operands give [j]"),
    ("dtype", after(Map(Tile(9, (), I64), "Exp", (TOTAL,))), "%9 is i64, expected f32"),
    ("takes", after(Map(FLAG, "And", (TOTAL, TOTAL))), "%5 is f32; And takes"),
    ("arity", after(Map(Tile(9, (), F32), "Add", (TOTAL,))), "Add takes 2 operands, got 1"),
    ("op", after(Map(Tile(9, (), F32), "Sum", (TOTAL,))), "Sum is not a pointwise op"),
    ("no-buffer", after(Store("z", ROW, TOTAL)), "there is no buffer z; the kernel has x, y"),
    ("input", after(Store("x", ROW, TOTAL)), "x is an input"),
    ("stray", after(Store("y", STRAY, TOTAL)), "stray in stray is not bound here"),
    ("loop-symbol", after(Store("y", J, TOTAL)), "j in j is not bound here"),
    ("leftover", after(Store("y", ROW, RESULT)), "a store happens in the loops over its axes"),
    ("index", after(Store("y", AT, TOTAL, indices=((AT, TOTAL),))), "the index %5 is f32"),
    ("literal", after(Literal(Tile(9, (), F32), bytes(8))), "8 bytes for f32"),
    ("reduction", after(Reduce(Tile(9, (), F32), "Div", RESULT, J)), "Div is no reduction"),
    ("reduced", after(Reduce(Tile(9, (), F32), "Add", TOTAL, J)), "%5 has no partial results"),
    (
        "no-scan",
        with_loop(LOAD, ADD, Prefix(Tile(9, (J,), F32), FLAG, "Div", READ, J)),
        "Div is no scan",
    ),
    (
        "prefix-unrolled",
        with_loop(LOAD, ADD, Prefix(Tile(9, (J,), F32), Tile(8, (), F32), "Add", READ, J)),
        "bound to a vector alone",
    ),
    (
        "prefix-total",
        with_loop(
            LOAD, ADD, Prefix(Tile(9, (J,), F32), Tile(8, (J,), F32), "Add", READ, J), unroll=1
        ),
        "%8 has axes [j]; its operands give []",
    ),
    ("if", with_loop(LOAD, ADD, If(J < 3, ())), "depends on the tile axis j"),
    ("index-dtype", after(Index(Tile(9, (), F32), ROW)), "the result is f32, expected i64"),
    ("vector", with_loop(vector=12), "vector a power of two"),
    ("stop", with_loop(stop=N + STRAY), "stray in n + stray is not bound here"),
    ("next", with_loop(LOAD), "%3 is not defined before"),
    (
        "two-vector-add",
        with_loop(
            LOAD, ADD,
            Loop(M, const(0), const(8), (Store("y", ROW, ZERO_TILE, add=True),), vector=8),
        ),
        "the store has vector axes j, m",
    ),
    ("own-axis", with_loop(unroll=1, vector=1), "its loop has no tile"),
    (
        "two-vector-store",
        with_loop(
            LOAD, ADD, Loop(M, const(0), const(8), (Store("y", J + M, ZERO_TILE),), vector=8)
        ),
        "the store has vector axes j, m",
    ),
    (
        "two-vectors",
        with_loop(LOAD, ADD, Loop(M, const(0), const(8), (Index(Tile(9, (J, M), I64), J + M),), (),
                                  1, 8)),
        "a value has at most one",
    ),
    (
        "contract",
        after(Contract(Tile(9, (), F32), TOTAL, TOTAL, FLAG, multiply_add(F32))),
        "%9 is not defined before",
    ),
    (
        "dot-of-other-factors",
        after(Contract(Tile(9, (), F32), TOTAL, TOTAL, TOTAL, BF16_PAIRS)),
        "is f32, expected bf16",
    ),
    (
        "dot-into-integers",
        after(Contract(Tile(9, (), I64), TOTAL, TOTAL, TOTAL, BF16_PAIRS)),
        "%9 is i64, expected f32",
    ),
    (
        "dot-without-neighbours",
        replace(pair_sum(), body=pair_sum(stop=3).body),
        "it takes one step, of its 2 positions alone, from 0",
    ),
    (
        "dot-of-a-plain-loop",
        pair_sum(neighbours=1),
        "the dot bf16x2 takes 2 neighbours along one axis of both factors",
    ),
    (
        "neighbours-computed-with",
        pair_sum(Map(Tile(9, (NEAR,), F32), "Cast", (PAIR_A,))),
        "%11 holds neighbours along near; only a dot takes those",
    ),
    (
        "neighbours-told-apart",
        pair_sum(Load(Tile(9, (NEAR,), BF16), "x", NEAR, NEAR < 1)),
        "tells neighbours apart; guard all of them or none",
    ),
    ("bound-twice", with_loop(LOAD, ADD, Loop(J, const(0), N, ())), "j is bound already"),
    (
        "unwritten",
        replace(row_sum(), body=(Load(Tile(9, (), F32), "y", ROW), *row_sum().body)),
        "y is an output that nothing was stored to",
    ),
    (
        "scratch",
        replace(row_sum(), scratch=(Buffer("w", F32, const(4)),)),
        "`buffer w`: its space is global",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "text"), [row[1:] for row in BROKEN], ids=[r[0] for r in BROKEN]
)
def test_broken_kernels_are_refused(kernel: Kernel, text: str) -> None:
    with pytest.raises(VerifyError) as caught:
        verify(kernel)
    assert text in str(caught.value)


def test_errors_name_the_line() -> None:
    kernel = after(Store("x", ROW, TOTAL))
    with pytest.raises(VerifyError, match=r"^tile IR: `store x\[row\] <- %5`: x is an input"):
        verify(kernel)


def test_values_of_a_finished_loop_stay_out_of_a_loop_over_the_same_axis() -> None:
    body = (Map(Tile(9, (J,), F32), "Exp", (RESULT,)),)
    with pytest.raises(VerifyError, match="%4 is defined elsewhere"):
        verify(after(Loop(J, const(0), N, body, (), 2, 8)))
    with pytest.raises(VerifyError, match="%4 holds another tile of this axis"):
        verify(after(Loop(J, const(0), N, (), (), 1, 8)))


def test_interpreter_checks_bounds() -> None:
    short = with_loop(replace(LOAD, offset=ROW * N + J + 1), ADD)
    arrays = {"x": np.zeros(20, np.float32), "y": np.zeros(4, np.float32)}
    message = r"`%2: f32\[j\] = load x.*`: offset 20 is outside x\[20\]; guard it"
    with pytest.raises(VerifyError, match=message):
        tile_interpreter.run(short, arrays, {"n": 5})
    guarded = with_loop(replace(LOAD, offset=ROW * N + J + 1, guard=J + 1 < N), ADD)
    tile_interpreter.run(guarded, arrays, {"n": 5})


def test_interpreter_checks_buffers() -> None:
    arrays = {"x": np.zeros(19, np.float32), "y": np.zeros(4, np.float32)}
    with pytest.raises(VerifyError, match=r"buffer x: float32\[19\] given.*contiguous f32\[20\]"):
        tile_interpreter.run(row_sum(), arrays, {"n": 5})


def test_contract_rounds_once() -> None:
    a, b, acc = np.float32([1 + 2**-13]), np.float32([1 - 2**-13]), np.float32([-1])
    exact = multiply_add(F32).meaning(acc, a[:, None], b[:, None])
    assert exact[0] == np.float32(-(2.0**-26))
    assert a[0] * b[0] + acc[0] != exact[0]
    acc, a, b = np.int8([[100], [20], [9]])
    wrapped = multiply_add(dtypes.int8).meaning(acc, a[:, None], b[:, None])
    assert wrapped[0] == np.int64(280).astype(np.int8)


def test_a_dot_adds_the_products_of_its_neighbours() -> None:
    """3 * -4 of the first ones, the lower halves of words, and 1.5 * 2 of the second ones."""
    a, b = np.uint32([0x3FC0_4040]), np.uint32([0x4000_C080])
    assert BF16_PAIRS.of_words(np.float32([0.5]), a, b)[0] == 0.5 + 3 - 12
    verify(pair_sum())
    text = to_text(pair_sum())
    assert "for near in 0..<2 neighbours(2):\n    carry %13: f32[] = %0 -> %14" in text
    assert "%11: bf16[near] = load x[near]\n" in text
    assert "%14: f32[] = contract %13 + %11 * %12 by bf16x2\n" in text
    x, w, y = (np.array(v, t.numpy) for v, t in (([1.5, 3], BF16), ([2, -4], BF16), ([0], F32)))
    tile_interpreter.run(pair_sum(), {"x": x, "w": w, "y": y}, {})
    assert y[0] == 3 - 12


@pytest.mark.parametrize("has_it", [True, False])
@pytest.mark.parametrize("apart", [1, 3])
def test_neighbours_are_words_once_expanded(has_it: bool, apart: int) -> None:
    """Side by side in memory they are read as a word, else joined; the dot is an instruction, or
    done by others.
    """
    instructions = frozenset({(BF16_PAIRS.name, Type(F32))}) if has_it else frozenset()
    expanded = expand(pair_sum(apart=apart), 1, instructions)
    verify_expanded(expanded)
    words = [s for s in expanded.statements() if isinstance(s, ir.Load) and s.buffer == "x"]
    assert [s.out.type.dtype for s in words] == [dtypes.uint32] * (apart == 1) + [dtypes.uint16] * (
        2 * (apart > 1)
    )
    assert (f"= {BF16_PAIRS} " in expanded_text(expanded)) is has_it
    x, w, y = (
        np.array(v, t.numpy) for v, t in (([1.5, 7, 7, 3], BF16), ([2, -4], BF16), ([0], F32))
    )
    run_expanded(expanded, {"x": x, "w": w, "y": y}, {})
    assert y[0] == 3 - 4 * x[apart]


@pytest.mark.parametrize("op", sorted(ON_BITS))
@pytest.mark.parametrize("number", [0, 1, 4, 7, 9, 165])
def test_words_choose_bits_of_all_neighbours(op: str, number: int) -> None:
    """As each would alone: no bits come from the number beside it."""
    near = axis("near", 4)
    byte, by, chosen = Tile(1, (near,), U8), Tile(2, (), U8), Tile(3, (near,), U8)
    body = (Load(byte, "x", near), Map(chosen, op, (byte, by)), Store("y", near, chosen))
    kernel = Kernel(
        params=(),
        buffers=(Buffer("x", U8, const(4)), Buffer("y", U8, const(4), role=Role.OUT)),
        scratch=(),
        grid=(),
        body=(Literal(by, bytes([number])), Loop(near, const(0), const(4), body, neighbours=4)),
    )
    verify(kernel)
    x = np.uint8([0x81, 0xFF, 0x3C, 0x96])
    found = []
    for run in (tile_interpreter.run, lambda k, *given: run_expanded(expand(k), *given)):
        y = np.zeros(4, np.uint8)
        run(kernel, {"x": x, "y": y}, {})
        found.append(y.tolist())
    meaning = {"And": int.__and__, "Or": int.__or__, "Xor": int.__xor__}
    meaning |= {"Shl": int.__lshift__, "Shr": int.__rshift__}
    want = [meaning[op](each, number) & 255 for each in x.tolist()]
    assert found == [want] * 2


def test_scratch_is_laid_out_in_cache_lines() -> None:
    scratch = (
        Buffer("a", F32, N, Space.SCRATCH),
        Buffer("b", I64, const(3), Space.SCRATCH),
    )
    offsets = scratch_offsets(replace(row_sum(), scratch=scratch))
    assert [o.evaluate({"n": 17}) for o in offsets] == [0, 128, 192]
    assert scratch_offsets(row_sum()) == (as_expression(0),)
    assert TRUE is const(1)
