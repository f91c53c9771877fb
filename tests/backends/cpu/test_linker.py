"""Object code that refers to all that LLVM lets code refer to, and what cannot be loaded."""

from __future__ import annotations

import ctypes
import gc
import math

import pytest

from luminal.backends.cpu import compiler, linker, machine_code, target
from luminal.base.errors import CompileError
from tests.backends.cpu.every_reference import EVERYTHING

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
