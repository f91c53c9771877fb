"""The LLVM IR emitter: exact literals, structure of functions, errors, valid text."""

import struct

import llvmlite.binding as llvm
import pytest

from luminal.codegen.llvm_builder import (
    F32,
    F64,
    I8,
    I32,
    I64,
    PTR,
    VOID,
    FunctionBuilder,
    IRType,
    ModuleBuilder,
    literal,
    literal_bits,
)

V4 = F32.with_lanes(4)


def function(name: str = "f", **options: str) -> FunctionBuilder:
    return FunctionBuilder(
        ModuleBuilder(), name, VOID, [("p", PTR, "noalias"), ("n", I64)], **options
    )


def accepted(text: str) -> None:
    llvm.parse_assembly(text).verify()


def test_types_print_as_llvm_spells_them() -> None:
    assert str(F32) == "float"
    assert str(IRType("float", 16)) == "<16 x float>"
    assert IRType("bfloat", 8).mangled == "v8bf16"
    assert PTR.with_lanes(4).mangled == "v4p0"
    assert (IRType("half").bits, PTR.bits, I8.bits, IRType("i1").bits) == (16, 64, 8, 1)


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (IRType("i1"), True, "true"),
        (I8, 255, "-1"),
        (I8, -129, "127"),
        (I64, 2**64 - 1, "-1"),
        (F64, 1.0, "0x3FF0000000000000"),
        (F32, 0.1, "0x3FB99999A0000000"),
        (F32, -0.0, "0x8000000000000000"),
        (F32, 1e300, "0x7FF0000000000000"),
        (F32, 2.0**-149, "0x36A0000000000000"),
        (IRType("half"), 1.0, "0xH3C00"),
    ],
)
def test_literals(type_: IRType, value: float, text: str) -> None:
    assert literal(type_, value) == text


def test_float_literals_keep_nan_payloads() -> None:
    assert literal_bits(F32, 0x7FA00001) == "0x7FF4000020000000"
    (widened,) = struct.unpack("<Q", struct.pack("<d", 1.5))
    assert int(literal_bits(F32, 0x3FC00000), 16) == widened
    assert literal_bits(IRType("bfloat"), 0x3F80) == "0xR3F80"


def test_a_loop_over_vectors_with_every_kind_of_memory_access_is_valid() -> None:
    b = function()
    pointer, n = b.params
    start, loop, done = b.current, b.label("loop"), b.label("done")
    b.block(loop)  # falls through from entry
    index = b.phi(I64, [(b.const(I64, 0), start)])
    address = b.gep(pointer, index, F32)
    lanes = b.vector_const(I64.with_lanes(4), range(4))
    mask = b.icmp("ult", lanes, b.splat(n, 4))
    value = b.masked_load(V4, address, mask, 4, b.zero(V4))
    pointers = b.gep(pointer, lanes, F32)
    value = b.binary("fadd", value, b.masked_gather(V4, pointers, mask, 4, b.poison(V4)))
    total = b.intrinsic("llvm.vector.reduce.fmaximum", F32, [value], [V4])
    value = b.insert(value, total, b.const(I32, 1))
    b.masked_scatter(b.shuffle(value, value, [3, -1, 1, 4]), pointers, mask, 4)
    b.masked_store(value, address, mask, 4)
    b.store(b.shuffle(value, value, [5]), b.alloca(F32), 4)
    following = b.binary("add", index, b.const(I64, 4))
    b.add_incoming(index, following, b.current)
    b.cond_br(b.icmp("slt", following, n), done, loop, unlikely=True)
    b.block(done)
    b.ret()
    text = b.module.text()
    accepted(text)
    assert text.count("declare <4 x float> @llvm.masked.load") == 1
    assert "phi i64 [ 0, %entry ], [ " in text
    assert "!prof !0" in text


def test_declarations_globals_and_helpers_are_written_once() -> None:
    b = function()

    def build(module: ModuleBuilder, name: str) -> None:
        f = FunctionBuilder(module, name, F64, [("x", F64)], "internal")
        f.ret(f.call("sin", F64, f.params))

    table = b.module.add_global("table", "[2 x i8]", "[i8 1, i8 2]")
    for _ in range(2):
        b.call(b.module.helper("twice", build), F64, [b.const(F64, 1.0)])
        b.call("sin", F64, [b.const(F64, 1.0)])
    b.load(PTR, table, 8)
    b.ret()
    text = b.module.text()
    accepted(text)
    assert text.count("declare double @sin(double)") == 1
    assert text.count("define internal double @twice") == 1
    assert "@table = private unnamed_addr constant [2 x i8]" in text


def test_one_lane_vectors_are_scalars() -> None:
    b = function()
    value = b.const(F32, 2.0)
    assert b.splat(value, 1) is value
    assert b.const(V4, 2.0).name == "splat (float 0x4000000000000000)"
    assert b.cast("bitcast", value, F32) is value


def test_errors_name_the_operands_and_the_fix() -> None:
    b = function("kernel")
    with pytest.raises(ValueError, match=r"kernel: fadd: operand types differ: float .*, double"):
        b.binary("fadd", b.const(F32, 1.0), b.const(F64, 1.0))
    with pytest.raises(ValueError, match=r"vector_const: <4 x float> takes 4 values, got 3"):
        b.vector_const(V4, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"blocks without terminator: \['entry'\]; end each one"):
        b.text()
    b.ret()
    with pytest.raises(ValueError, match=r"`ret void` after the terminator of entry"):
        b.ret()
    with pytest.raises(ValueError, match=r"constant 1.0 of bfloat: give its exact bits"):
        b.const(IRType("bfloat"), 1.0)
