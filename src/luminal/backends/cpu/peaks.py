"""What this machine reaches at most: arithmetic and reading, measured on all threads at once."""

from __future__ import annotations

import functools
import json
import time
from string import Template

import numpy as np
from numpy.typing import NDArray

from luminal.backends.cpu import compiler, team
from luminal.backends.cpu.launch_ir import KERNEL, LAUNCH, SLOT_REF
from luminal.backends.cpu.linker import LoadedCode
from luminal.backends.cpu.target import CpuTarget
from luminal.base.dtypes import uint8
from luminal.memory.arrays import address, aligned_empty
from luminal.runtime import object_cache
from luminal.runtime.roofline import Peaks

ACCUMULATORS = 12  # independent chains: two fmas a cycle of latency four need eight
LINES = 8  # vectors that a reading loop loads a turn
REPEATS = 8  # the best counts: other programs only ever slow a measurement down
ARITHMETIC_TURNS = 200_000
MEMORY_FACTOR = 4  # times the last cache: hardly any of it stays there
MEMORY_BYTES = (64 << 20, 1 << 30)  # at least and at most
CACHE_READS = 64  # of half the second cache

_KERNEL = """
declare <$lanes x float> @llvm.fma.v${lanes}f32(<$lanes x float>, <$lanes x float>,
                                                <$lanes x float>)

; Chunk c of the grid makes dims[0] passes of dims[1] turns over its dims[2] bytes of the buffer.
define void @kernel(ptr %slots, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %base = load ptr, ptr %slots
  %turns.at = getelementptr i64, ptr %dims, i64 1
  %share.at = getelementptr i64, ptr %dims, i64 2
  %passes = load i64, ptr %dims
  %turns = load i64, ptr %turns.at
  %share = load i64, ptr %share.at
  %offset = mul i64 %share, %begin
  %start = getelementptr i8, ptr %base, i64 %offset
  %factor = load <$lanes x float>, ptr %start, align 4
  br label %pass
pass:
  %p = phi i64 [0, %entry], [%p.next, %pass.end]
  br label %turn
turn:
  %i = phi i64 [0, %pass], [%i.next, %turn]
$inner
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %turns
  br i1 %more, label %turn, label %pass.end
pass.end:
  %p.next = add i64 %p, 1
  %again = icmp ult i64 %p.next, %passes
  br i1 %again, label %pass, label %exit
exit:
$stores
  ret void
}
"""


# Peaks serve reports only. Programs must not depend on them, or two compiles on a busy machine
# would differ.
def peaks(target: CpuTarget, threads: int) -> Peaks:
    """This machine's peaks for the target, measured now; the object cache keeps the greatest of all
    measurements, as whatever else runs only slows one down.
    """
    # Whatever else runs only slows a measurement down, so the greatest of all measurements is
    # nearest to the truth and is what is kept.
    caches = (target.l2_bytes, target.l3_bytes, target.cores)
    # The number is that of the way of measuring: results of an older one are not compared.
    key = object_cache.key("peaks 2", target.cpu, target.vector_bits, target.fma, caches, threads)
    objects = object_cache.default()
    kept, measured = objects.get(key), measure(target, threads)
    if kept is not None:
        measured = measured.or_more(Peaks(*json.loads(kept)))
    objects.put(key, json.dumps(measured).encode())
    return measured


@functools.cache
def _kernels(target: CpuTarget) -> tuple[LoadedCode, LoadedCode]:
    """What is timed: arithmetic, and reading."""
    return (
        compiler.build(_arithmetic_ir(target), target),
        compiler.build(_reading_ir(target), target),
    )


def measure(target: CpuTarget, threads: int) -> Peaks:
    """The peaks that so many threads reach at this moment."""
    lanes = target.vector_lanes(4)
    arithmetic, reading = _kernels(target)
    step = LINES * lanes * 4
    ones = np.ones(threads * lanes, np.float32)
    chains = ARITHMETIC_TURNS * ACCUMULATORS * lanes * 2
    seconds = _best(arithmetic.address, ones.view(np.uint8), 1, ARITHMETIC_TURNS, threads)
    size = min(max(MEMORY_FACTOR * target.l3_bytes, MEMORY_BYTES[0]), MEMORY_BYTES[1])
    streamed = size // (threads * step)
    buffer = aligned_empty((streamed * step * threads,), uint8)
    buffer[...] = 0  # its pages are mapped now
    memory = _best(reading.address, buffer, 1, streamed, threads)
    kept = max(target.l2_bytes // 2 // step, 1)
    cached = buffer[: kept * step * threads]
    cache = _best(reading.address, cached, CACHE_READS, kept, threads)
    return Peaks(
        flops=threads * chains / seconds,
        memory=buffer.nbytes / memory,
        cache=cached.nbytes * CACHE_READS / cache,
        cache_bytes=target.l3_bytes // 2,
    )


def _best(function: int, buffer: NDArray[np.uint8], passes: int, turns: int, threads: int) -> float:
    """The least seconds in which the team does it, each thread with its share of the buffer."""
    dims = np.array([passes, turns, buffer.nbytes // threads], np.int64)
    launches = np.array([(KERNEL, 0, function, threads, 1, 0, dims.ctypes.data, 0)], LAUNCH)
    refs = np.array([(0, 0, 0, 1, 0, 0)], SLOT_REF)
    table = np.array([address(buffer)], np.uint64)
    stride = -(-ACCUMULATORS * 64 // 128) * 128  # bytes of the widest registers
    scratch = aligned_empty((threads * stride,), uint8)
    record = team.run_record(launches, refs, table, threads, address(scratch), stride)
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        team.execute(record.ctypes.data)
        taken.append(time.perf_counter() - start)
    return min(taken)


def _arithmetic_ir(target: CpuTarget) -> str:
    lanes = target.vector_lanes(4)
    vector = f"<{lanes} x float>"
    lines = []
    for k in range(ACCUMULATORS):
        lines.append(f"  %a{k} = phi {vector} [%factor, %pass], [%n{k}, %turn]")
    for k in range(ACCUMULATORS):
        if target.fma:
            operands = f"{vector} %a{k}, {vector} %factor, {vector} %factor"
            lines.append(f"  %n{k} = call {vector} @llvm.fma.v{lanes}f32({operands})")
        else:
            lines.append(f"  %m{k} = fmul {vector} %a{k}, %factor")
            lines.append(f"  %n{k} = fadd {vector} %m{k}, %factor")
    return _kernel(lanes, "\n".join(lines), [f"%n{k}" for k in range(ACCUMULATORS)])


def _reading_ir(target: CpuTarget) -> str:
    lanes = target.vector_lanes(4)
    vector, stride = f"<{lanes} x float>", lanes * 4
    lines = [f"  %a{k} = phi {vector} [%factor, %pass], [%n{k}, %turn]" for k in range(LINES)]
    lines.append(f"  %at = mul i64 %i, {LINES * stride}")
    lines.append("  %row = getelementptr i8, ptr %start, i64 %at")
    for k in range(LINES):
        lines.append(f"  %r{k} = getelementptr i8, ptr %row, i64 {k * stride}")
        lines.append(f"  %v{k} = load {vector}, ptr %r{k}, align 4")
        lines.append(f"  %n{k} = fadd {vector} %a{k}, %v{k}")
    return _kernel(lanes, "\n".join(lines), [f"%n{k}" for k in range(LINES)])


def _kernel(lanes: int, inner: str, results: list[str]) -> str:
    stores = []
    for k, result in enumerate(results):  # or the code generator would leave it all out
        stores.append(f"  %s{k} = getelementptr i8, ptr %scratch, i64 {k * lanes * 4}")
        stores.append(f"  store <{lanes} x float> {result}, ptr %s{k}, align 4")
    parts = {"lanes": lanes, "inner": inner, "stores": "\n".join(stores)}
    return Template(_KERNEL).substitute(parts)
