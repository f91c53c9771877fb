"""Object code that refers to all that LLVM lets code refer to, and what cannot be loaded."""

from __future__ import annotations

import ctypes
import gc
import math

import pytest

from luminal.backends.cpu import compiler, linker, machine_code, target
from luminal.base.errors import CompileError

EVERYTHING = """
@table = private constant [4 x double] [double 1.0, double 2.0, double 4.0, double 8.0], align 64
@counter = internal global i64 0, align 64
@large = internal global [5000 x i8] zeroinitializer, align 64
@seen = global i64 40
@functions = internal constant [2 x ptr] [ptr @half, ptr @sqrt]
@outside = external global i64

declare double @sqrt(double)
declare double @cos(double)
declare double @ours(double)

define internal double @half(double %x) noinline {
  %y = fmul double %x, 0.5
  ret double %y
}

; table[which] * f(x) + counter++ + seen + outside, f by a table of functions
define double @kernel(i64 %which, double %x) {
entry:
  %at = getelementptr [4 x double], ptr @table, i64 0, i64 %which
  %factor = load double, ptr %at
  %low = and i64 %which, 1
  %function.at = getelementptr [2 x ptr], ptr @functions, i64 0, i64 %low
  %function = load ptr, ptr %function.at
  %value = call double %function(double %x)
  %product = fmul double %factor, %value
  %count = load i64, ptr @counter
  %next = add i64 %count, 1
  store i64 %next, ptr @counter
  %last = getelementptr i8, ptr @large, i64 4999
  store i8 1, ptr %last
  %seen = load i64, ptr @seen
  %outside = load i64, ptr @outside
  %both = add i64 %seen, %outside
  %sum = add i64 %count, %both
  %number = sitofp i64 %sum to double
  %total = fadd double %product, %number
  ret double %total
}

define double @other(i64 %which, double %x) {
entry:
  switch i64 %which, label %none [
    i64 0, label %zero
    i64 1, label %one
    i64 2, label %two
    i64 3, label %three
    i64 4, label %four
  ]
zero:
  %cosine = call double @cos(double %x)
  ret double %cosine
one:
  %own = call double @ours(double %x)
  ret double %own
two:
  %halved = call double @half(double %x)
  ret double %halved
three:
  %sum = fadd double %x, 3.0
  ret double %sum
four:
  %difference = fsub double %x, 7.0
  ret double %difference
none:
  ret double 0.0
}
"""

Function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64, ctypes.c_double)


def compiled(ir: str) -> bytes:
    return machine_code.compile_object(ir, target.detect())


def maps() -> list[str]:
    with open("/proc/self/maps") as file:
        return file.read().splitlines()


def test_all_that_code_refers_to() -> None:
    outside = ctypes.c_int64(1000)
    ours = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda x: x * 100)
    address = ctypes.cast(ours, ctypes.c_void_p).value
    assert address is not None
    foreign = {"ours": address, "outside": ctypes.addressof(outside)}
    code = compiler.load(compiled(EVERYTHING), ("kernel", "other"), foreign)
    kernel, other = (Function(code.symbols[name]) for name in ("kernel", "other"))
    calls = [kernel(which, 9.0) for which in range(4)]
    assert calls == [1040 + 4.5, 1041 + 2 * 3, 1042 + 4 * 4.5, 1043 + 8 * 3]
    outside.value = 0
    assert kernel(0, 2.0) == 45
    found = [other(which, 2.0) for which in range(6)]
    assert found == [math.cos(2.0), 200.0, 1.0, 5.0, -5.0, 0.0]


def test_no_page_is_written_and_run_and_all_go_with_the_code() -> None:
    alone = EVERYTHING.replace("@outside = external global i64", "@outside = global i64 7")
    code = compiler.load(compiled(alone.replace("@ours", "@sin")))
    address, before = code.address, maps()
    first = next(number for number, row in enumerate(before) if _holds(row, address))
    access = [row.split()[1] for row in before[first : first + 3]]
    assert access == ["r-xp", "r--p", "rw-p"]
    del code
    gc.collect()
    assert not any(_holds(row, address) for row in maps())


def _holds(row: str, address: int) -> bool:
    start, stop = (int(end, 16) for end in row.split()[0].split("-"))
    return start <= address < stop


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("@ours", "@nobody", "linking: nobody is not in the object, nor in libc or libm"),
        ("@outside = external", "@outside = external thread_local", "relocation .* not supported"),
        ("@kernel", "@colonel", "linking: the object defines no kernel"),
    ],
)
def test_what_cannot_be_loaded_is_named(before: str, after: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compiler.load(
            compiled(EVERYTHING.replace(before, after)), foreign={"outside": 8, "ours": 8}
        )


@pytest.mark.parametrize("data", [b"", b"\x7fELF" + bytes(80), b"x" * 100])
def test_bytes_that_are_no_object_file(data: bytes) -> None:
    with pytest.raises(CompileError, match="these bytes are no object file of x86-64 or AArch64"):
        linker.link(data, (), {})
