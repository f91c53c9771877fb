"""What the team's LLVM IR says otherwise on each machine.

A waiting thread tells its core so, looks at a clock that costs little, and sleeps by a system call;
a run sets aside how its thread rounds. Orders of memory are none of this: the IR names the order of
each atomic access, and LLVM makes of it what the machine needs.
"""

from __future__ import annotations

from collections.abc import Mapping

_X86_64 = {
    "FUTEX": "202",
    "FRESH_CODE": "",  # it sees by itself that code has been written
    "PAUSE": "call void @llvm.x86.sse2.pause()",
    "TICKS": "call i64 @llvm.readcyclecounter()",
    "READ_MODE": "call void @llvm.x86.sse.stmxcsr(ptr %mode)",
    "WRITE_MODE": "call void @llvm.x86.sse.ldmxcsr(ptr %mode)",
    "MODE_BITS": "65472",  # of the control register: all but the six of past exceptions
    "IEEE_MODE": "8064",  # every exception masked, to the nearest, subnormals kept
    "MACHINE": """
declare void @llvm.x86.sse2.pause()
declare i64 @llvm.readcyclecounter()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
""",
}
# Its counter of cycles is the kernel's. The virtual one counts at a rate that it tells, from 24 MHz
# to 1 GHz: multiplied, three ticks are about a nanosecond, as the numbers of `team_ir` are meant.
_AARCH64 = {
    "FUTEX": "98",
    # What it has fetched already may be what lay there before. Who writes code clears the caches of
    # all, but each processor has to start its fetches anew itself.
    "FRESH_CODE": "\n  call void @llvm.aarch64.isb(i32 15)",
    "PAUSE": "call void @llvm.aarch64.hint(i32 1)",  # yield
    "TICKS": "call i64 @ticks()",
    "READ_MODE": "call void @read_mode(ptr %mode)",
    "WRITE_MODE": "call void @write_mode(ptr %mode)",
    "MODE_BITS": "-1",  # past exceptions have a register of their own
    "IEEE_MODE": "0",
    "MACHINE": """
declare void @llvm.aarch64.hint(i32)
declare void @llvm.aarch64.isb(i32)
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
declare i64 @llvm.read_volatile_register.i64(metadata)
!0 = !{!"CNTFRQ_EL0"}
!1 = !{!"CNTVCT_EL0"}

; Time in thirds of a nanosecond, about.
define internal i64 @ticks() {
entry:
  %rate = call i64 @llvm.read_volatile_register.i64(metadata !0)
  %count = call i64 @llvm.read_volatile_register.i64(metadata !1)
  %factor = udiv i64 3000000000, %rate
  %ticks = mul i64 %count, %factor
  ret i64 %ticks
}

define internal void @read_mode(ptr %mode) {
entry:
  %wide = call i64 @llvm.aarch64.get.fpcr()
  %bits = trunc i64 %wide to i32
  store i32 %bits, ptr %mode
  ret void
}

define internal void @write_mode(ptr %mode) {
entry:
  %bits = load i32, ptr %mode
  %wide = zext i32 %bits to i64
  call void @llvm.aarch64.set.fpcr(i64 %wide)
  ret void
}
""",
}
MACHINES: Mapping[str, Mapping[str, str]] = {
    "x86_64": _X86_64,
    "aarch64": _AARCH64,
    "arm64": _AARCH64,
}
"""By the first part of LLVM's triple: what stands for the names in `team_ir`."""
