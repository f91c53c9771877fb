"""Launch lists of tiny hand-written kernels over i64 arrays, and an interpreter of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from luminal.backends.cpu import compiler, launch_ir, target, team
from luminal.backends.cpu.linker import LoadedCode

Array = np.ndarray

_LOOP = """
declare i32 @clock_gettime(i32, ptr)
define void @kernel(ptr %slots, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %n = load i64, ptr %dims
  %s1 = getelementptr ptr, ptr %slots, i64 1
  %s2 = getelementptr ptr, ptr %slots, i64 2
  %p0 = load ptr, ptr %slots
  %p1 = load ptr, ptr %s1
  %p2 = load ptr, ptr %s2
  br label %head
head:
  %i = phi i64 [%begin, %entry], [%i.next, %tail]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %exit
body:
{body}
tail:
  %i.next = add i64 %i, 1
  br label %head
exit:
  ret void
}}
"""

_ADD = """
  %a = getelementptr i64, ptr %p0, i64 %i
  %b = getelementptr i64, ptr %p1, i64 %i
  %c = getelementptr i64, ptr %p2, i64 %i
  %x = load i64, ptr %a
  %y = load i64, ptr %b
  %x3 = mul i64 %x, 3
  %z = add i64 %x3, %y
  store i64 %z, ptr %c
  br label %tail
"""

_MIX = """
  br label %inner
inner:
  %j = phi i64 [0, %body], [%j.next, %inner]
  %acc = phi i64 [%i, %body], [%acc.next, %inner]
  %a = getelementptr i64, ptr %p0, i64 %j
  %x = load i64, ptr %a
  %acc7 = mul i64 %acc, 7
  %acc.next = add i64 %acc7, %x
  %j.next = add i64 %j, 1
  %inner.more = icmp slt i64 %j.next, %n
  br i1 %inner.more, label %inner, label %done
done:
  %c = getelementptr i64, ptr %p2, i64 %i
  store i64 %acc.next, ptr %c
  br label %tail
"""

_TAG = """
  %old = load i64, ptr %scratch
  %new = add i64 %old, 1
  store i64 %new, ptr %scratch
  %c = getelementptr i64, ptr %p2, i64 %i
  store i64 %new, ptr %c
  br label %tail
"""


_NOW = """
  %ignored = call i32 @clock_gettime(i32 1, ptr %scratch)
  %seconds = load i64, ptr %scratch
  %nanoseconds.at = getelementptr i64, ptr %scratch, i64 1
  %nanoseconds = load i64, ptr %nanoseconds.at
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %nanoseconds
  %c = getelementptr i64, ptr %p2, i64 %i
  store i64 %now, ptr %c
  br label %tail
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel over slots (in, in, out), native and in NumPy; `n` is dims[0]."""

    body: str
    meaning: Callable[[Array, Array, Array, int], None]

    @functools.cached_property
    def code(self) -> LoadedCode:
        return compiler.build(_LOOP.format(body=self.body), target.current())


def _add(a: Array, b: Array, out: Array, grid: int) -> None:
    out[:grid] = 3 * a[:grid] + b[:grid]


def _mix(a: Array, b: Array, out: Array, grid: int) -> None:
    mixed = np.arange(grid)
    for x in a.copy():
        mixed = 7 * mixed + x
    out[:grid] = mixed


ADD = Kernel(_ADD, _add)  # out[i] = 3 a[i] + b[i]: own chunk in, own chunk out
MIX = Kernel(_MIX, _mix)  # out[i] depends on every a[j], j < n: needs a barrier after a's writer
TAG = Kernel(_TAG, lambda a, b, out, grid: None)  # out[i] = how often this member's scratch ran
NOW = Kernel(_NOW, lambda a, b, out, grid: None)  # out[i] = the monotonic clock, nanoseconds


@dataclass
class Program:
    """A launch list being built over buffers of `n` int64 each."""

    n: int
    buffers: list[Array]
    rows: list[tuple[int, ...]] = field(default_factory=list)
    refs: list[tuple[int, ...]] = field(default_factory=list)
    kernels: list[Kernel | None] = field(default_factory=list)
    open_loops: list[int] = field(default_factory=list)

    def launch(
        self, kernel: Kernel, refs: Sequence[int | tuple[int, ...]], grid: int, flags: int = 1
    ) -> Program:
        """A kernel; a ref is a buffer's index or (base, depth, offset, modulus, stride), behind
        which the bytes to begin with may stand.
        """
        start = len(self.refs)
        rows = [(ref, 0, 0, 1, 0) if isinstance(ref, int) else ref for ref in refs]
        self.refs += [row if len(row) == 6 else (*row, 0) for row in rows]
        address = kernel.code.address
        self.rows.append((launch_ir.KERNEL, flags, address, grid, len(refs), start, 0, 0))
        self.kernels.append(kernel)
        return self

    def loop(self, trips: int) -> Program:
        self.open_loops.append(len(self.rows))
        self.rows.append((launch_ir.LOOP_BEGIN, 0, 0, trips, 0, 0, 0, 0))
        self.kernels.append(None)
        return self

    def end(self) -> Program:
        begin = self.open_loops.pop()
        self.rows.append((launch_ir.LOOP_END, 0, 0, 0, 0, 0, 0, begin))
        self.rows[begin] = (*self.rows[begin][:7], len(self.rows))
        self.kernels.append(None)
        return self

    def prepare(self, threads: int) -> Prepared:
        return Prepared(self, threads)

    def run(self, threads: int) -> int:
        return self.prepare(threads).run()

    def interpret(self) -> list[Array]:
        """What the buffers should hold after a run, by a slow walk over copies."""
        buffers = [buffer.copy() for buffer in self.buffers]
        iterations = [0]
        pc = 0
        while pc < len(self.rows):
            kind, _, _, grid, count, start, _, jump = self.rows[pc]
            if kind == launch_ir.KERNEL:
                views = []
                for base, depth, offset, modulus, stride, at in self.refs[start : start + count]:
                    i = iterations[depth]
                    buffer = buffers[base + (i + offset) % modulus]
                    views.append(buffer[(at + i * stride) // 8 :])
                kernel = self.kernels[pc]
                assert kernel is not None
                kernel.meaning(views[0][: self.n], views[1], views[2], grid)
                pc += 1
            elif kind == launch_ir.LOOP_BEGIN:
                iterations.append(0)
                pc += 1
                if grid <= 0:
                    iterations.pop()
                    pc = jump
            else:
                iterations[-1] += 1
                pc = jump + 1 if iterations[-1] < self.rows[jump][3] else pc + 1
                if pc != jump + 1:
                    iterations.pop()
        return buffers


class Prepared:
    """A Program with its native records, ready to run again and again."""

    def __init__(self, program: Program, threads: int) -> None:
        self.program = program
        self.dims = np.array([program.n], np.int64)
        self.table = np.array([buffer.ctypes.data for buffer in program.buffers], np.uint64)
        self.launches = np.array(program.rows, launch_ir.LAUNCH)
        self.launches["dims"] = self.dims.ctypes.data
        self.refs = np.array(program.refs, launch_ir.SLOT_REF)
        team.verify(self.launches, self.refs, len(self.table))
        self.scratch = np.zeros((threads, 16), np.int64)
        self.record = team.run_record(
            self.launches, self.refs, self.table, threads, self.scratch.ctypes.data, 128
        )
        self.address = int(self.record.ctypes.data)

    def run(self) -> int:
        return team.execute(self.address)


def buffers(count: int, n: int, seed: int = 0) -> list[Array]:
    """Random contents."""
    random = np.random.default_rng(seed)
    return [random.integers(-1000, 1000, n) for _ in range(count)]


def random_program(seed: int) -> Program:
    """Kernels over six buffers, in Loops nested up to three deep, a barrier before each."""
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 50))
    program = Program(n, buffers(6, n, seed))

    def ref(depth: int) -> tuple[int, ...]:
        modulus = int(random.integers(1, 4))
        base = int(random.integers(0, 7 - modulus))
        return base, int(random.integers(0, depth + 1)), int(random.integers(0, 5)), modulus, 0

    def block(depth: int) -> None:
        for _ in range(random.integers(1, 5)):
            if depth < 3 and random.random() < 0.3:
                program.loop(int(random.integers(0, 4)))
                block(depth + 1)
                program.end()
            else:
                # Out of place, so that the order within one launch cannot matter.
                a, b = ref(depth), ref(depth)
                out = (5, 0, 0, 1, 0) if random.random() < 0.5 else (4, 0, 0, 1, 0)
                a, b = ((min(r[0], 4 - r[3]), *r[1:]) for r in (a, b))
                program.launch(MIX if random.random() < 0.5 else ADD, (a, b, out), n)
                program.launch(ADD, (out, out, (int(random.integers(0, 4)), 0, 0, 1, 0)), n)

    block(0)
    return program


def chain(seed: int, length: int = 10) -> Program:
    """Launches each of which reads what the one before wrote."""
    random = np.random.default_rng(seed)
    program = Program(48, [random.integers(-99, 99, 48) for _ in range(3)])
    for _ in range(length):
        program.launch(ADD, (0, 1, 2), 48).launch(MIX, (2, 2, 0), 48)
    return program
