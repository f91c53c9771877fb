"""IR text to loaded code: the cache, sharing, unloading, capped targets, errors."""

from __future__ import annotations

import ctypes
import gc
import platform
import re
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from luminal.backends.cpu import compiler, host, hwcaps, machine_code, target
from luminal.backends.cpu.linker import LoadedCode
from luminal.base import config
from luminal.base.errors import CompileError
from luminal.base.target import Target
from luminal.runtime import object_cache
from tests.close import close_each
from tests.machines import LEVELS, NARROWER

SCALE = """
declare <LANES x float> @llvm.fma.vLANESf32(<LANES x float>, <LANES x float>, <LANES x float>)
declare float @sinf(float)

define void @kernel(ptr %slots, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %spare = alloca i64
  store i64 %begin, ptr %spare
  %first = load i64, ptr %spare
  %p = load ptr, ptr %slots
  %at = getelementptr <LANES x float>, ptr %p, i64 %first
  %x = load <LANES x float>, ptr %at, align 4
  %y = call <LANES x float> @llvm.fma.vLANESf32(<LANES x float> %x, <LANES x float> %x,
                                                <LANES x float> %x)
  store <LANES x float> %y, ptr %at, align 4
  %head = load float, ptr %p
  %sine = call float @sinf(float %head)
  store float %sine, ptr %p
  ret void
}
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    with config.override(LUMINAL_CACHE_DIR=tmp_path):
        yield


def scale_ir(lanes: int, note: str = "") -> str:
    return SCALE.replace("LANES", str(lanes)) + f"; {note}\n"


def call(code: LoadedCode, x: np.ndarray) -> None:
    slots = np.array([x.ctypes.data], np.uint64)
    prototype = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
    )
    prototype(code.address)(slots.ctypes.data, None, 0, 1, None)


@pytest.mark.parametrize("level", ["native", *LEVELS])
def test_every_level_computes_alike(level: str) -> None:
    try:
        capped = target.cap(target.detect(), level)
    except CompileError as error:
        pytest.skip(str(error))
    lanes = capped.vector_lanes(4)
    x = np.linspace(1, 2, lanes, dtype=np.float32)
    expected = x + x * x
    expected[0] = np.sin(expected[0])
    call(compiler.build(scale_ir(lanes), capped), x)
    close_each(x, expected)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the levels of x86")
def test_registers_follow_the_level() -> None:
    registers = {}
    for level in ("avx512", "avx2", "baseline"):
        try:
            capped = target.cap(target.detect(), level)
        except CompileError:
            continue
        text = machine_code.assembly(scale_ir(16), capped)
        registers[level] = next(name for name in ("zmm", "ymm", "xmm") if name in text)
    assert registers == {
        level: name
        for level, name in {"avx512": "zmm", "avx2": "ymm", "baseline": "xmm"}.items()
        if level in registers
    }


def test_sroa_leaves_no_stack_slot() -> None:
    assert "%rsp)" not in machine_code.assembly(
        scale_ir(4).replace("call float @sinf(float %head)", "fadd float %head, 1.0"),
        target.detect(),
    )


def test_build_is_cached_in_the_process_and_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    native = target.current()
    code = compiler.build(scale_ir(4), native)
    assert compiler.build(scale_ir(4), native) is code
    assert object_cache.info().entries == 1
    compiled = weakref.ref(code)
    del code
    gc.collect()
    assert compiled() is None
    with monkeypatch.context() as patch:
        patch.setattr(machine_code, "compile_object", None)  # nothing compiles from here on
        again = compiler.build(scale_ir(4), native)
    x = np.ones(4, np.float32)
    call(again, x)
    assert x[1] == 2.0


def test_damaged_cache_entry_is_built_again(tmp_path: Path) -> None:
    compiler.build(scale_ir(8), target.current())
    gc.collect()
    (entry,) = (tmp_path / "objects").rglob("*.o")
    entry.write_bytes(entry.read_bytes()[:-1])
    x = np.ones(8, np.float32)
    call(compiler.build(scale_ir(8), target.current()), x)
    assert x[1] == 2.0


def test_identical_objects_load_once() -> None:
    object_bytes = machine_code.compile_object(scale_ir(4), target.current())
    assert compiler.load(object_bytes) is compiler.load(object_bytes)
    noted = compiler.build(scale_ir(4, "two texts"), target.current())
    assert noted is compiler.build(scale_ir(4, "of one object"), target.current())


def test_keys_differ_by_text_target_and_flag() -> None:
    native = target.detect()
    keys = {
        compiler.cache_key("a", native),
        compiler.cache_key("b", native),
        compiler.cache_key("a", target.cap(native, "baseline")),
    }
    assert len(keys) == 3


def test_threads_compile_at_once() -> None:
    native, failures = target.current(), []

    def work(number: int) -> None:
        try:
            x = np.ones(4, np.float32)
            call(compiler.build(scale_ir(4, str(number % 3)), native), x)
            assert x[1] == 2.0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("load float, ptr %p", "load flot, ptr %p", r"expected type(.|\n)*line \d+: %head = load"),
        ("fma.v4f32(<4 x float> %x", "fma.v4f32(<4 x float> %z", r"undefined value '%z'"),
        ("ret void", "ret i32 0", r"result type 'void'(.|\n)*line 19: ret i32 0"),
        ("store i64 %begin,", "store i64 %first,", r"dominate(.|\n)*line 8: store i64 %first"),
    ],
)
def test_bad_ir_names_the_line(before: str, after: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        machine_code.compile_object(scale_ir(4).replace(before, after), target.current())


def test_missing_symbol() -> None:
    object_bytes = machine_code.compile_object(
        scale_ir(4).replace("@kernel", "@other"), target.current()
    )
    with pytest.raises(CompileError, match="linking: the object defines no kernel"):
        compiler.load(object_bytes)


def test_speed() -> None:
    """A trivial kernel compiles in about 3 ms and loads in 0.3 ms; the bounds leave room."""
    native = target.current()
    compiler.build(scale_ir(4, "warm"), native)
    compiling, loading = [], []
    for number in range(5):
        start = time.perf_counter()
        object_bytes = machine_code.compile_object(
            scale_ir(4).replace("sinf", f"s{number}"), native
        )
        compiling.append(time.perf_counter() - start)
        object_bytes = machine_code.compile_object(scale_ir(4 + number), native)
        start = time.perf_counter()
        code = compiler.load(object_bytes)
        loading.append(time.perf_counter() - start)
        del code
    assert min(compiling) < 0.020
    assert min(loading) < 0.005


def test_detected_facts_are_plausible() -> None:
    facts = target.detect()
    assert facts.vector_bits in (128, 256, 512)
    assert facts.vector_lanes(4) == facts.vector_bits // 32
    assert facts.cores >= 1
    assert 8 << 10 <= facts.l1_bytes <= facts.l2_bytes <= facts.l3_bytes
    assert facts.fma == (target.machine_of(facts.triple).fma in facts.features)
    assert len({facts, target.detect(), target.cap(facts, "native")}) == 1


def test_the_host_is_asked_for_once_a_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = host.host.__wrapped__
    first, other = asked(), tmp_path / "cpuinfo"
    triple, cpu, features = machine_code.host()
    if platform.machine() == hwcaps.MACHINE:
        features = hwcaps.features(*hwcaps.words())
    assert (first.triple, first.cpu, first.features) == (triple, cpu, features)
    with monkeypatch.context() as patch:
        patch.setattr(machine_code, "host", lambda: ("a-linux", "new", {"avx": True}))
        assert asked() == first
        other.write_text("flags\t\t: sse\ncpu MHz\t: 7\n\nflags\t\t: all\n")
        patch.setattr(host, "CPUINFO", other)
        assert asked().cpu == "new"
        other.write_text("flags\t\t: sse\ncpu MHz\t: 8\n\nflags\t\t: none\n")
        patch.setattr(machine_code, "host", lambda: ("a-linux", "newer", {}))
        assert asked().cpu == "new"
        patch.setattr(host, "llvm_version", lambda: "another LLVM")
        assert asked().cpu == "newer"
        patch.setattr(host, "CPUINFO", tmp_path / "missing")
        patch.setattr(machine_code, "host", lambda: ("a-linux", "last", {}))
        assert asked().cpu == "last"


def test_flag_caps_the_target() -> None:
    last = target.machine_of(target.detect().triple).levels[LEVELS[-1]]
    with config.override(LUMINAL_TARGET="baseline"):
        assert target.current().vector_bits == 128
        assert target.current().features == last.features


def test_cap_refuses_what_the_machine_lacks() -> None:
    plain: Target = target.cap(target.detect(), "baseline")
    levels = target.machine_of(target.detect().triple).levels
    higher, last = levels[NARROWER], levels[LEVELS[-1]]
    lacks = ", ".join(sorted(set(higher.features) - set(last.features)))
    with pytest.raises(
        CompileError, match=f"target '{NARROWER}': this CPU \\({last.cpu}\\) lacks {lacks};"
    ):
        target.cap(plain, NARROWER)
    with pytest.raises(CompileError, match=f"'sse9': on .* takes native, {', '.join(LEVELS)}"):
        target.cap(plain, "sse9")


STRIDED = """
define void @kernel(ptr %x, ptr %y, i64 %stride, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %offset = mul i64 %i, %stride
  %from = getelementptr float, ptr %x, i64 %offset
  %value = load float, ptr %from, align 4
  %to = getelementptr float, ptr %y, i64 %offset
  store float %value, ptr %to, align 4
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def test_settings_of_llvm_are_put_back() -> None:
    """Others in the process get the code that they always got; ours multiplies as written."""
    here = target.detect()

    def others() -> str:
        machine = machine_code.new_machine(here.triple, here.cpu, here.llvm_features)
        return str(machine.emit_assembly(machine_code._module(STRIDED, here)))

    before, ours = others(), machine_code.assembly(STRIDED, here)
    multiplies = re.compile(r"\b(imul|mul|madd)")
    assert multiplies.search(ours)
    assert not multiplies.search(before)
    assert others() == before
