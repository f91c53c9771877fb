"""The launch list: its records, and as LLVM IR the driver that walks it.

A program is data: rows of launches and loop marks, the buffers each launch takes (found through
one table of addresses, by loop iteration), and one run record. Every member of a team walks the
same list with `@walk` and runs its own share of each grid; members meet at the barriers.

*Profile.* Where the run record has `times`, members meet after every kernel instead of before
some, and the caller adds the nanoseconds since the last meeting to the kernel's row of `times`:
the rows add up to the run, from the team's first meeting on.
"""

from __future__ import annotations

import numpy as np

KERNEL, LOOP_BEGIN, LOOP_END = 0, 1, 2
"""Kinds of a launch."""

BARRIER, SERIAL = 1, 2
"""Flags of a launch: a team barrier stands before it; the caller runs all its chunks."""

MAX_LOOP_DEPTH = 16

LAUNCH = np.dtype(
    [
        ("kind", "i4"),
        ("flags", "i4"),
        ("fn", "u8"),  # address of the kernel
        ("grid", "i8"),  # chunks; of a LOOP_BEGIN: trips
        ("n_slots", "i8"),
        ("slot_start", "i8"),  # its first row in the slot refs
        ("dims", "u8"),  # address of the kernel's i64 parameters
        ("jump", "i8"),  # LOOP_BEGIN: the row after its end; LOOP_END: the row of its begin
    ]
)
"""A row of the launch list."""

SLOT_REF = np.dtype(
    [(name, "i8") for name in ("base", "depth", "offset", "modulus", "stride", "start")]
)
"""A buffer: `table[base + (i + offset) % modulus] + start + i * stride` (bytes), i: iter[depth]."""

RUN = np.dtype(
    [
        ("launches", "u8"),
        ("n", "i8"),
        ("table", "u8"),  # addresses of buffers
        ("slot_refs", "u8"),
        ("scratch", "u8"),
        ("scratch_stride", "i8"),  # bytes of scratch per member
        ("max_threads", "i8"),
        ("times", "u8"),  # address of nanoseconds by launch (i64), or 0: a run without a profile
        ("wakes", "i8"),  # 0: only workers that are awake join
    ]
)
"""What the native entry takes: one run of one program."""

WALK_IR = """
%Launch = type { i32, i32, ptr, i64, i64, i64, ptr, i64 }
%SlotRef = type { i64, i64, i64, i64, i64, i64 }
%Run = type { ptr, i64, ptr, ptr, ptr, i64, i64, ptr, i64 }
%Time = type { i64, i64 }

declare ptr @llvm.stacksave.p0()
declare void @llvm.stackrestore.p0(ptr)
declare i32 @clock_gettime(i32, ptr)

; Nanoseconds of the monotonic clock.
define internal i64 @now() {
entry:
  %time = alloca %Time, align 8
  %ignored = call i32 @clock_gettime(i32 1, ptr %time)
  %nanoseconds.at = getelementptr %Time, ptr %time, i64 0, i32 1
  %seconds = load i64, ptr %time
  %nanoseconds = load i64, ptr %nanoseconds.at
  %scaled = mul i64 %seconds, 1000000000
  %total = add i64 %scaled, %nanoseconds
  ret i64 %total
}

; Run member's share of the launch list.
define internal void @walk(ptr %run, ptr %team, i64 %member, i64 %size) {
entry:
  %iterations = alloca [$ITERATIONS x i64], align 16
  %last = alloca i64, align 8
  store i64 0, ptr %iterations
  %n.at = getelementptr %Run, ptr %run, i64 0, i32 1
  %table.at = getelementptr %Run, ptr %run, i64 0, i32 2
  %refs.at = getelementptr %Run, ptr %run, i64 0, i32 3
  %scratch.at = getelementptr %Run, ptr %run, i64 0, i32 4
  %stride.at = getelementptr %Run, ptr %run, i64 0, i32 5
  %times.at = getelementptr %Run, ptr %run, i64 0, i32 7
  %launches = load ptr, ptr %run
  %n = load i64, ptr %n.at
  %table = load ptr, ptr %table.at
  %refs = load ptr, ptr %refs.at
  %scratch.base = load ptr, ptr %scratch.at
  %scratch.stride = load i64, ptr %stride.at
  %scratch.offset = mul i64 %scratch.stride, %member
  %scratch = getelementptr i8, ptr %scratch.base, i64 %scratch.offset
  %caller = icmp eq i64 %member, 0
  %member.next = add i64 %member, 1
  %times = load ptr, ptr %times.at
  %timed = icmp ne ptr %times, null
  br i1 %timed, label %gather, label %fetch
gather: ; waking the team is no kernel's time
  call void @barrier(ptr %team)
  %time.start = call i64 @now()
  store i64 %time.start, ptr %last
  br label %fetch

fetch:
  %pc = phi i64 [0, %entry], [0, %gather], [%pc.next, %next], [%jump, %skip], [%body, %again]
  %depth = phi i64 [0, %entry], [0, %gather], [%depth.next, %next], [%depth, %skip],
                   [%depth, %again]
  %more = icmp slt i64 %pc, %n
  br i1 %more, label %decode, label %exit
decode:
  %kind.at = getelementptr %Launch, ptr %launches, i64 %pc, i32 0
  %flags.at = getelementptr %Launch, ptr %launches, i64 %pc, i32 1
  %grid.at = getelementptr %Launch, ptr %launches, i64 %pc, i32 3
  %jump.at = getelementptr %Launch, ptr %launches, i64 %pc, i32 7
  %kind = load i32, ptr %kind.at
  %flags = load i32, ptr %flags.at
  %grid = load i64, ptr %grid.at
  %jump = load i64, ptr %jump.at
  %barrier.bit = and i32 %flags, 1
  %ordered = icmp ne i32 %barrier.bit, 0
  %meets = select i1 %timed, i1 false, i1 %ordered
  br i1 %meets, label %order, label %dispatch
order:
  call void @barrier(ptr %team)
  br label %dispatch
dispatch:
  switch i32 %kind, label %kernel [ i32 1, label %loop.begin
                                    i32 2, label %loop.end ]

kernel:
  %serial.bit = and i32 %flags, 2
  %serial = icmp ne i32 %serial.bit, 0
  %low = mul i64 %grid, %member
  %high = mul i64 %grid, %member.next
  %begin.shared = udiv i64 %low, %size
  %end.shared = udiv i64 %high, %size
  %end.serial = select i1 %caller, i64 %grid, i64 0
  %begin = select i1 %serial, i64 0, i64 %begin.shared
  %end = select i1 %serial, i64 %end.serial, i64 %end.shared
  %work = icmp slt i64 %begin, %end
  br i1 %work, label %slots, label %launched
slots:
  %fn.at = getelementptr %Launch, ptr %launches, i64 %pc, i32 2
  %count.at = getelementptr %Launch, ptr %launches, i64 %pc, i32 4
  %start.at = getelementptr %Launch, ptr %launches, i64 %pc, i32 5
  %dims.at = getelementptr %Launch, ptr %launches, i64 %pc, i32 6
  %fn = load ptr, ptr %fn.at
  %count = load i64, ptr %count.at
  %start = load i64, ptr %start.at
  %dims = load ptr, ptr %dims.at
  %stack = call ptr @llvm.stacksave.p0()
  %slots.local = alloca ptr, i64 %count, align 16
  br label %slot
slot:
  %k = phi i64 [0, %slots], [%k.next, %resolved]
  %slot.more = icmp slt i64 %k, %count
  br i1 %slot.more, label %resolve, label %call
resolve:
  %row = add i64 %start, %k
  %base.at = getelementptr %SlotRef, ptr %refs, i64 %row, i32 0
  %depth.at = getelementptr %SlotRef, ptr %refs, i64 %row, i32 1
  %offset.at = getelementptr %SlotRef, ptr %refs, i64 %row, i32 2
  %modulus.at = getelementptr %SlotRef, ptr %refs, i64 %row, i32 3
  %bytes.at = getelementptr %SlotRef, ptr %refs, i64 %row, i32 4
  %begun.at = getelementptr %SlotRef, ptr %refs, i64 %row, i32 5
  %base = load i64, ptr %base.at
  %ref.depth = load i64, ptr %depth.at
  %offset = load i64, ptr %offset.at
  %modulus = load i64, ptr %modulus.at
  %bytes = load i64, ptr %bytes.at
  %begun = load i64, ptr %begun.at
  %iteration.at = getelementptr i64, ptr %iterations, i64 %ref.depth
  %iteration = load i64, ptr %iteration.at
  %turn = add i64 %iteration, %offset
  %inside = icmp ult i64 %turn, %modulus ; most lists have an entry per iteration
  br i1 %inside, label %resolved, label %rotate
rotate:
  %turn.in = urem i64 %turn, %modulus
  br label %resolved
resolved:
  %place = phi i64 [%turn, %resolve], [%turn.in, %rotate]
  %entry.index = add i64 %base, %place
  %entry.at = getelementptr ptr, ptr %table, i64 %entry.index
  %buffer = load ptr, ptr %entry.at
  %walked = mul i64 %iteration, %bytes
  %advance = add i64 %begun, %walked
  %address = getelementptr i8, ptr %buffer, i64 %advance
  %slot.at = getelementptr ptr, ptr %slots.local, i64 %k
  store ptr %address, ptr %slot.at
  %k.next = add i64 %k, 1
  br label %slot
call:
  call void %fn(ptr %slots.local, ptr %dims, i64 %begin, i64 %end, ptr %scratch)
  call void @llvm.stackrestore.p0(ptr %stack)
  br label %launched
launched:
  br i1 %timed, label %finish, label %next
finish:
  call void @barrier(ptr %team)
  br i1 %caller, label %note, label %next
note:
  %time.at = getelementptr i64, ptr %times, i64 %pc
  %time.before = load i64, ptr %time.at
  %time.last = load i64, ptr %last
  %time.now = call i64 @now()
  %time.taken = sub i64 %time.now, %time.last
  %time.sum = add i64 %time.before, %time.taken
  store i64 %time.sum, ptr %time.at
  store i64 %time.now, ptr %last
  br label %next

loop.begin:
  %runs = icmp sgt i64 %grid, 0
  br i1 %runs, label %enter, label %skip
enter:
  %depth.in = add i64 %depth, 1
  %first.at = getelementptr i64, ptr %iterations, i64 %depth.in
  store i64 0, ptr %first.at
  br label %next
skip: ; a loop ends with a barrier, also one of no trips
  call void @barrier(ptr %team)
  br label %fetch

loop.end:
  call void @barrier(ptr %team)
  %trips.at = getelementptr %Launch, ptr %launches, i64 %jump, i32 3
  %trips = load i64, ptr %trips.at
  %now.at = getelementptr i64, ptr %iterations, i64 %depth
  %now = load i64, ptr %now.at
  %now.next = add i64 %now, 1
  store i64 %now.next, ptr %now.at
  %repeat = icmp slt i64 %now.next, %trips
  br i1 %repeat, label %again, label %leave
again:
  %body = add i64 %jump, 1
  br label %fetch
leave:
  %depth.out = sub i64 %depth, 1
  br label %next

next:
  %depth.next = phi i64 [%depth, %launched], [%depth, %finish], [%depth, %note],
                        [%depth.in, %enter], [%depth.out, %leave]
  %pc.next = add i64 %pc, 1
  br label %fetch
exit:
  ret void
}
"""
