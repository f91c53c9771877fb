"""Functions of macOS and Windows over Linux's, as LLVM IR: what native code there calls.

Each traps where it is called otherwise than its system would have it: an unknown clock, flags of
another system, a wait for more than four bytes. Code for Windows passes arguments in other
registers, so all that it calls here has that convention (`win64cc`), and what Python calls of it
goes through a function of Linux's.
"""

from __future__ import annotations

import platform
from string import Template

_FUTEX = {"x86_64": "202", "aarch64": "98"}[platform.machine()]
_LINUX = """
declare i64 @syscall(i64, ...)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i64 @sysconf(i32)
declare i32 @clock_gettime(i32, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @llvm.trap()

define internal void @require(i1 %holds) {
  br i1 %holds, label %fine, label %fail
fine:
  ret void
fail:
  call void @llvm.trap()
  unreachable
}

define internal i32 @futex_wait(ptr %word, i32 %seen) {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 128, i32 %seen, ptr null)
  %narrow = trunc i64 %r to i32
  ret i32 %narrow
}

define internal i32 @futex_wake(ptr %word) {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 129, i32 2147483647)
  %narrow = trunc i64 %r to i32
  ret i32 %narrow
}
""".replace("FUTEX", _FUTEX)
MAC = (
    _LINUX
    + """
define ptr @mac_mmap(ptr %at, i64 %size, i32 %access, i32 %flags, i32 %file, i64 %offset) {
  %fits = icmp eq i32 %flags, 4098
  call void @require(i1 %fits)
  %area = call ptr @mmap(ptr %at, i64 %size, i32 %access, i32 34, i32 %file, i64 %offset)
  ret ptr %area
}

define i64 @mac_sysconf(i32 %name) {
  %fits = icmp eq i32 %name, 58
  call void @require(i1 %fits)
  %count = call i64 @sysconf(i32 84)
  ret i64 %count
}

define i32 @mac_clock_gettime(i32 %clock, ptr %time) {
  %fits = icmp eq i32 %clock, 6
  call void @require(i1 %fits)
  %r = call i32 @clock_gettime(i32 1, ptr %time)
  ret i32 %r
}

define i32 @mac_pthread_sigmask(i32 %how, ptr %new, ptr %old) {
  %fits = icmp eq i32 %how, 3
  call void @require(i1 %fits)
  %r = call i32 @pthread_sigmask(i32 2, ptr %new, ptr %old)
  ret i32 %r
}

define i32 @mac___ulock_wait(i32 %operation, ptr %word, i64 %value, i32 %timeout) {
  %fits = icmp eq i32 %operation, 16777217
  call void @require(i1 %fits)
  %forever = icmp eq i32 %timeout, 0
  call void @require(i1 %forever)
  %seen = trunc i64 %value to i32
  %r = call i32 @futex_wait(ptr %word, i32 %seen)
  ret i32 %r
}

define i32 @mac___ulock_wake(i32 %operation, ptr %word, i64 %value) {
  %fits = icmp eq i32 %operation, 16777473
  call void @require(i1 %fits)
  %r = call i32 @futex_wake(ptr %word)
  ret i32 %r
}

define i32 @mac_os_sync_wait_on_address(ptr %word, i64 %value, i64 %size, i32 %flags) {
  %four = icmp eq i64 %size, 4
  call void @require(i1 %four)
  %wide = icmp ult i64 %value, 4294967296
  call void @require(i1 %wide)
  %none = icmp eq i32 %flags, 0
  call void @require(i1 %none)
  %seen = trunc i64 %value to i32
  %r = call i32 @futex_wait(ptr %word, i32 %seen)
  ret i32 %r
}

define i32 @mac_os_sync_wake_by_address_all(ptr %word, i64 %size, i32 %flags) {
  %four = icmp eq i64 %size, 4
  call void @require(i1 %four)
  %none = icmp eq i32 %flags, 0
  call void @require(i1 %none)
  %r = call i32 @futex_wake(ptr %word)
  ret i32 %r
}
"""
)
_WINDOWS = """
define win64cc ptr @win_VirtualAlloc(ptr %at, i64 %size, i32 %kind, i32 %access) {
  %commits = icmp eq i32 %kind, 12288
  call void @require(i1 %commits)
  %writes = icmp eq i32 %access, 4
  call void @require(i1 %writes)
  %area = call ptr @mmap(ptr %at, i64 %size, i32 3, i32 34, i32 -1, i64 0)
  ret ptr %area
}

define win64cc i32 @win_GetActiveProcessorCount(i16 %group) {
  %all = icmp eq i16 %group, -1
  call void @require(i1 %all)
  %count = call i64 @sysconf(i32 84)
  %narrow = trunc i64 %count to i32
  ret i32 %narrow
}

define internal ptr @begin(ptr %pair) {
  %argument.at = getelementptr ptr, ptr %pair, i64 1
  %function = load ptr, ptr %pair
  %argument = load ptr, ptr %argument.at
  call void @free(ptr %pair)
  %r = call win64cc ptr %function(ptr %argument)
  ret ptr %r
}

define win64cc ptr @win_CreateThread(ptr %security, i64 %stack, ptr %function, ptr %argument,
                                     i32 %flags, ptr %number) {
  %pair = call ptr @malloc(i64 16)
  %argument.at = getelementptr ptr, ptr %pair, i64 1
  store ptr %function, ptr %pair
  store ptr %argument, ptr %argument.at
  %thread = alloca ptr, align 8
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr @begin, ptr %pair)
  %created = icmp eq i32 %status, 0
  %handle = load ptr, ptr %thread
  %result = select i1 %created, ptr %handle, ptr null
  ret ptr %result
}

define win64cc i32 @win_CloseHandle(ptr %handle) {
  %id = ptrtoint ptr %handle to i64
  %r = call i32 @pthread_detach(i64 %id)
  ret i32 1
}

define win64cc i32 @win_QueryPerformanceCounter(ptr %count) {
  %time = alloca { i64, i64 }, align 8
  %r = call i32 @clock_gettime(i32 1, ptr %time)
  %rest.at = getelementptr { i64, i64 }, ptr %time, i64 0, i32 1
  %seconds = load i64, ptr %time
  %rest = load i64, ptr %rest.at
  %ticks = mul i64 %seconds, 10000000
  %more = udiv i64 %rest, 100
  %all = add i64 %ticks, %more
  store i64 %all, ptr %count
  ret i32 1
}

define win64cc i32 @win_QueryPerformanceFrequency(ptr %rate) {
  store i64 10000000, ptr %rate
  ret i32 1
}

define win64cc i32 @win_WaitOnAddress(ptr %word, ptr %value, i64 %size, i32 %timeout) {
  %four = icmp eq i64 %size, 4
  call void @require(i1 %four)
  %forever = icmp eq i32 %timeout, -1
  call void @require(i1 %forever)
  %seen = load i32, ptr %value
  %r = call i32 @futex_wait(ptr %word, i32 %seen)
  ret i32 1
}

define win64cc void @win_WakeByAddressAll(ptr %word) {
  %r = call i32 @futex_wake(ptr %word)
  ret void
}

; Touches what is below the stack, and changes no register.
define void @win___chkstk() {
  ret void
}
"""
_THROUGH = Template("""
declare $result @$name($types)
define win64cc $result @win_$name($arguments) {
  $takes call $result @$name($arguments)
  ret $result$value
}
""")
# What code for Windows calls of Python and of the C library, with its result and arguments.
FUNCTIONS = {
    "PyLong_AsSsize_t": ("i64", "ptr"),
    "PyErr_Occurred": ("ptr",),
    "PyDict_Size": ("i64", "ptr"),
    "PyDict_GetItem": ("ptr", "ptr", "ptr"),
    "PyList_New": ("ptr", "i64"),
    "PyList_SetItem": ("i32", "ptr", "i64", "ptr"),
    "PyList_GetItem": ("ptr", "ptr", "i64"),
    "Py_IncRef": ("void", "ptr"),
    "PyLong_AsVoidPtr": ("ptr", "ptr"),
    "PyLong_FromLongLong": ("ptr", "i64"),
    "PyBool_FromLong": ("ptr", "i64"),
    "PySequence_GetItem": ("ptr", "ptr", "i64"),
    "PySequence_Size": ("i64", "ptr"),
    "Py_DecRef": ("void", "ptr"),
    "PyEval_SaveThread": ("ptr",),
    "PyEval_RestoreThread": ("void", "ptr"),
    "sin": ("double", "double"),
    "cos": ("double", "double"),
    "sinf": ("float", "float"),
    "cosf": ("float", "float"),
    "fmod": ("double", "double", "double"),
    "fmodf": ("float", "float", "float"),
    "memset": ("ptr", "ptr", "i32", "i64"),
    "memcpy": ("ptr", "ptr", "ptr", "i64"),
}


def _through(name: str, result: str, *types: str) -> str:
    arguments = ", ".join(f"{kind} %x{k}" for k, kind in enumerate(types))
    takes, value = ("", "") if result == "void" else ("%r =", " %r")
    return _THROUGH.substitute(
        name=name,
        result=result,
        types=", ".join(types),
        arguments=arguments,
        takes=takes,
        value=value,
    )


WINDOWS = _LINUX + _WINDOWS + "".join(_through(name, *kinds) for name, kinds in FUNCTIONS.items())


def defined(text: str, prefix: str) -> tuple[str, ...]:
    """The functions that a text defines for a system."""
    words = text.replace("(", " ").split()
    return tuple(word[1:] for word in words if word.startswith(f"@{prefix}"))


def entered(address: int) -> str:
    """A function as Linux calls it (`kernel`) that enters code of Windows at an address."""
    return f"""
define ptr @kernel(ptr %none, ptr %args, i64 %count) {{
  %function = inttoptr i64 {address} to ptr
  %r = call win64cc ptr %function(ptr %none, ptr %args, i64 %count)
  ret ptr %r
}}
"""
