"""What the team's LLVM IR says otherwise on each operating system.

Each text defines the same functions: memory for the control area (`area`; null where there is
none), the CPUs (`list_cpus`, `pin`), a worker's thread (`start`: its handle, or 0), whether that
thread has no CPU (`stands`), sleeping until a word changes (`sleep_on`, which may return early) and
waking all who sleep on it, and a clock. macOS and Windows pin no thread to a CPU: workers stay
without (-1), and nothing asks where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from string import Template
from typing import NamedTuple

from luminal.base.errors import CompileError


class System(NamedTuple):
    """`here` is the CPU of the calling thread; `mask` keeps signals from threads that are started
    before `unmask`. `wipes`: the control area is empty in a forked child.
    """

    functions: str
    here: str
    mask: str
    unmask: str
    wipes: bool


# --- Linux ----------------------------------------------------------------------------------------

_CLOCK = """
declare i32 @clock_gettime(i32, ptr)

; Nanoseconds of a clock.
define internal i64 @read(i32 %clock) {
entry:
  %time = alloca { i64, i64 }, align 8
  %ignored = call i32 @clock_gettime(i32 %clock, ptr %time)
  %nanoseconds.at = getelementptr { i64, i64 }, ptr %time, i64 0, i32 1
  %seconds = load i64, ptr %time
  %nanoseconds = load i64, ptr %nanoseconds.at
  %scaled = mul i64 %seconds, 1000000000
  %total = add i64 %scaled, %nanoseconds
  ret i64 %total
}

; Nanoseconds of the monotonic clock.
define internal i64 @nanoseconds() {
entry:
  %now = call i64 @read(i32 $MONOTONIC)
  ret i64 %now
}
"""
_PTHREADS = """
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)

; Start the thread of a worker.
define internal i64 @start(ptr %worker) {
entry:
  %thread = alloca i64, align 8
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %worker)
  %created = icmp eq i32 %status, 0
  br i1 %created, label %detach, label %fail
detach:
  %id = load i64, ptr %thread
  %ignored = call i32 @pthread_detach(i64 %id)
  ret i64 %id
fail:
  ret i64 0
}
"""
_LINUX = """
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @madvise(ptr, i64, i32)
declare i32 @pthread_getcpuclockid(i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_getcpu()
declare i64 @syscall(i64, ...)

; Fresh memory for the control area, which is wiped in a forked child.
define internal ptr @area() {
entry:
  %area = call ptr @mmap(ptr null, i64 $AREA, i32 3, i32 34, i32 -1, i64 0)
  %address = ptrtoint ptr %area to i64
  %failed = icmp eq i64 %address, -1
  br i1 %failed, label %fail, label %wipe
wipe:
  %status = call i32 @madvise(ptr %area, i64 $AREA, i32 18)
  %wiped = icmp eq i32 %status, 0
  br i1 %wiped, label %ready, label %fail
ready:
  ret ptr %area
fail:
  ret ptr null
}

; Note the CPUs this thread may use, without the slow ones.
define internal void @list_cpus() {
entry:
  %mask = alloca [128 x i8], align 16
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %ignored = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  br label %test
test:
  %cpu = phi i32 [0, %entry], [%cpu.next, %next]
  %count = phi i32 [0, %entry], [%count.next, %next]
  %byte = lshr i32 %cpu, 3
  %in.byte = and i32 %cpu, 7
  %byte.at = getelementptr i8, ptr %mask, i32 %byte
  %slow.at = getelementptr i8, ptr @slow, i32 %byte
  %bits = load i8, ptr %byte.at
  %slow = load i8, ptr %slow.at
  %fast = xor i8 %slow, -1
  %chosen = and i8 %bits, %fast
  %wide = zext i8 %chosen to i32
  %shifted = lshr i32 %wide, %in.byte
  %bit = and i32 %shifted, 1
  %usable = icmp ne i32 %bit, 0
  br i1 %usable, label %note, label %next
note:
  %at = getelementptr i32, ptr @cpus, i32 %count
  store i32 %cpu, ptr %at
  br label %next
next:
  %count.next = add i32 %count, %bit
  %cpu.next = add i32 %cpu, 1
  %more = icmp ult i32 %cpu.next, 1024
  br i1 %more, label %test, label %exit
exit:
  store i32 %count.next, ptr @n_cpus
  ret void
}

; Pin a worker to entry index of the list of CPUs.
define internal void @pin(ptr %worker, i32 %index) {
entry:
  %mask = alloca [128 x i8], align 16
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %cpu.at = getelementptr i32, ptr @cpus, i32 %index
  %cpu = load i32, ptr %cpu.at
  %byte = lshr i32 %cpu, 3
  %in.byte = and i32 %cpu, 7
  %bit = shl i32 1, %in.byte
  %bits = trunc i32 %bit to i8
  %byte.at = getelementptr i8, ptr %mask, i32 %byte
  store i8 %bits, ptr %byte.at
  %thread.at = getelementptr i8, ptr %worker, i64 $THREAD
  %thread = load i64, ptr %thread.at
  %ignored = call i32 @pthread_setaffinity_np(i64 %thread, i64 128, ptr %mask)
  %index.at = getelementptr i8, ptr %worker, i64 $CPU
  store i32 %index, ptr %index.at
  ret void
}

; Does a thread not run? Its time stands still between two looks then.
define internal i1 @stands(i64 %thread) {
entry:
  %clock = alloca i32, align 4
  %ignored = call i32 @pthread_getcpuclockid(i64 %thread, ptr %clock)
  %id = load i32, ptr %clock
  %before = call i64 @read(i32 %id)
  %after = call i64 @read(i32 %id)
  %stands = icmp eq i64 %before, %after
  ret i1 %stands
}

define internal void @sleep_on(ptr %word, i32 %seen) {
entry:
  %futex = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i32 128, i32 %seen, ptr null)
  ret void
}

define internal void @wake_all(ptr %word) {
entry:
  %futex = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i32 129, i32 2147483647)
  ret void
}
"""

# --- macOS and Windows ----------------------------------------------------------------------------

_UNPINNED = """
define internal void @pin(ptr %worker, i32 %index) {
entry:
  ret void
}

define internal i1 @stands(i64 %thread) {
entry:
  ret i1 false
}
"""
_DARWIN = """
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i64 @sysconf(i32)

; Fresh memory for the control area.
define internal ptr @area() {
entry:
  %area = call ptr @mmap(ptr null, i64 $AREA, i32 3, i32 4098, i32 -1, i64 0)
  %address = ptrtoint ptr %area to i64
  %failed = icmp eq i64 %address, -1
  %result = select i1 %failed, ptr null, ptr %area
  ret ptr %result
}

; Count the CPUs (_SC_NPROCESSORS_ONLN).
define internal void @list_cpus() {
entry:
  %count = call i64 @sysconf(i32 58)
  %narrow = trunc i64 %count to i32
  store i32 %narrow, ptr @n_cpus
  ret void
}
"""
# Public since macOS 14.4.
_SYNC = "os_sync_wait_on_address"
_OS_SYNC = """
declare i32 @os_sync_wait_on_address(ptr, i64, i64, i32)
declare i32 @os_sync_wake_by_address_all(ptr, i64, i32)

define internal void @sleep_on(ptr %word, i32 %seen) {
entry:
  %wide = zext i32 %seen to i64
  %ignored = call i32 @os_sync_wait_on_address(ptr %word, i64 %wide, i64 4, i32 0)
  ret void
}

define internal void @wake_all(ptr %word) {
entry:
  %ignored = call i32 @os_sync_wake_by_address_all(ptr %word, i64 4, i32 0)
  ret void
}
"""
# What the C++ library of every program calls since macOS 10.12: UL_COMPARE_AND_WAIT, and with
# ULF_WAKE_ALL to wake; ULF_NO_ERRNO in both.
_ULOCK = """
declare i32 @__ulock_wait(i32, ptr, i64, i32)
declare i32 @__ulock_wake(i32, ptr, i64)

define internal void @sleep_on(ptr %word, i32 %seen) {
entry:
  %wide = zext i32 %seen to i64
  %ignored = call i32 @__ulock_wait(i32 16777217, ptr %word, i64 %wide, i32 0)
  ret void
}

define internal void @wake_all(ptr %word) {
entry:
  %ignored = call i32 @__ulock_wake(i32 16777473, ptr %word, i64 0)
  ret void
}
"""
_WINDOWS = """
declare ptr @VirtualAlloc(ptr, i64, i32, i32)
declare i32 @GetActiveProcessorCount(i16)
declare ptr @CreateThread(ptr, i64, ptr, ptr, i32, ptr)
declare i32 @CloseHandle(ptr)
declare i32 @QueryPerformanceCounter(ptr)
declare i32 @QueryPerformanceFrequency(ptr)
declare i32 @WaitOnAddress(ptr, ptr, i64, i32)
declare void @WakeByAddressAll(ptr)

; Fresh memory for the control area (MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE).
define internal ptr @area() {
entry:
  %area = call ptr @VirtualAlloc(ptr null, i64 $AREA, i32 12288, i32 4)
  ret ptr %area
}

; Count the CPUs of all groups (ALL_PROCESSOR_GROUPS).
define internal void @list_cpus() {
entry:
  %count = call i32 @GetActiveProcessorCount(i16 -1)
  store i32 %count, ptr @n_cpus
  ret void
}

; Start the thread of a worker. A thread goes on without its handle.
define internal i64 @start(ptr %worker) {
entry:
  %thread = call ptr @CreateThread(ptr null, i64 0, ptr @worker, ptr %worker, i32 0, ptr null)
  %id = ptrtoint ptr %thread to i64
  %created = icmp ne i64 %id, 0
  br i1 %created, label %close, label %exit
close:
  %ignored = call i32 @CloseHandle(ptr %thread)
  br label %exit
exit:
  ret i64 %id
}

define internal void @sleep_on(ptr %word, i32 %seen) {
entry:
  %value = alloca i32, align 4
  store i32 %seen, ptr %value
  %ignored = call i32 @WaitOnAddress(ptr %word, ptr %value, i64 4, i32 -1)
  ret void
}

define internal void @wake_all(ptr %word) {
entry:
  call void @WakeByAddressAll(ptr %word)
  ret void
}

; Nanoseconds of the monotonic clock: whole seconds apart, or the product would not fit.
define internal i64 @nanoseconds() {
entry:
  %count.at = alloca i64, align 8
  %rate.at = alloca i64, align 8
  %ignored.1 = call i32 @QueryPerformanceCounter(ptr %count.at)
  %ignored.2 = call i32 @QueryPerformanceFrequency(ptr %rate.at)
  %count = load i64, ptr %count.at
  %rate = load i64, ptr %rate.at
  %seconds = udiv i64 %count, %rate
  %rest = urem i64 %count, %rate
  %rest.scaled = mul i64 %rest, 1000000000
  %part = udiv i64 %rest.scaled, %rate
  %scaled = mul i64 %seconds, 1000000000
  %total = add i64 %scaled, %part
  ret i64 %total
}
"""


def require(triple: str) -> None:
    """Raises CompileError where there is no team of threads for a triple's system."""
    is_windows = "windows" in triple and triple.startswith("x86_64")
    if not (is_windows or "linux" in triple or "apple" in triple):
        raise CompileError(
            f"cpu backend: {triple}: only Linux, macOS, and Windows on x86-64 are supported; "
            "use backend='reference'"
        )


def system(triple: str, find: Callable[[str], object]) -> System:
    """The system of a triple; `find` gives None for functions that it lacks.

    Raises CompileError as `require` does.
    """
    require(triple)
    if "linux" in triple:
        clock = Template(_CLOCK).safe_substitute(MONOTONIC="1")
        return System(
            clock + _PTHREADS + _LINUX, "call i32 @sched_getcpu()", *_masks("2"), wipes=True
        )
    if "apple" in triple:
        clock = Template(_CLOCK).safe_substitute(MONOTONIC="6")
        waits = _ULOCK if find(_SYNC) is None else _OS_SYNC
        functions = clock + _PTHREADS + _UNPINNED + _DARWIN + waits
        return System(functions, _NOWHERE, *_masks("3"), wipes=False)
    return System(_UNPINNED + _WINDOWS, _NOWHERE, "", "", wipes=True)  # nobody forks


_NOWHERE = "add i32 -1, 0"


def _masks(set_mask: str) -> tuple[str, str]:
    """Keeps all signals from this thread, and lets them in again (SIG_SETMASK)."""
    return (
        f"%masked = call i32 @pthread_sigmask(i32 {set_mask}, ptr %all, ptr %old)",
        f"%unmasked = call i32 @pthread_sigmask(i32 {set_mask}, ptr %old, ptr null)",
    )
