"""Python's way into native code: LLVM IR of functions that Python calls as it calls its own.

Through ctypes a call takes 0.3 us, and the address of each array as long again. Here arrays are
looked into where they lie: behind what all objects begin with, an array of NumPy has the address of
its data, which is a part of NumPy's ABI. That it is so is tried when the functions are made.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

ENTER, POINT = "luminal_enter", "luminal_point"

OBJECT_BYTES = object.__basicsize__  # of what all objects begin with

ENTRY_IR = """
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PySequence_GetItem(ptr, i64)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)

; `enter(run)`: runs; other threads of Python go on meanwhile. How many threads ran it.
define ptr @luminal_enter(ptr %none, ptr %args, i64 %count) {
entry:
  %number = load ptr, ptr %args
  %run = call ptr @PyLong_AsVoidPtr(ptr %number)
  %thread = call ptr @PyEval_SaveThread()
  %size = call i64 @luminal_run(ptr %run)
  call void @PyEval_RestoreThread(ptr %thread)
  %result = call ptr @PyLong_FromLongLong(i64 %size)
  ret ptr %result
}

; `point(run, arrays)`: writes where the data of arrays lie into the run's table, by its places. How
; many there are.
define ptr @luminal_point(ptr %none, ptr %args, i64 %count) {
entry:
  %arrays.at = getelementptr ptr, ptr %args, i64 1
  %number = load ptr, ptr %args
  %arrays = load ptr, ptr %arrays.at
  %run = call ptr @PyLong_AsVoidPtr(ptr %number)
  %table.at = getelementptr %Run, ptr %run, i64 0, i32 2
  %places.at = getelementptr %Run, ptr %run, i64 0, i32 9
  %n.at = getelementptr %Run, ptr %run, i64 0, i32 10
  %table = load ptr, ptr %table.at
  %places = load ptr, ptr %places.at
  %n = load i64, ptr %n.at
  br label %next
next:
  %k = phi i64 [0, %entry], [%k.next, %write]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %take, label %done
take:
  %entry.at = getelementptr %Place, ptr %places, i64 %k, i32 0
  %which.at = getelementptr %Place, ptr %places, i64 %k, i32 1
  %slot = load i64, ptr %entry.at
  %which = load i64, ptr %which.at
  %array = call ptr @PySequence_GetItem(ptr %arrays, i64 %which)
  %lacks = icmp eq ptr %array, null
  br i1 %lacks, label %fail, label %write
write:
  %data.at = getelementptr i8, ptr %array, i64 $OBJECT_BYTES
  %data = load ptr, ptr %data.at
  call void @Py_DecRef(ptr %array)
  %slot.at = getelementptr ptr, ptr %table, i64 %slot
  store ptr %data, ptr %slot.at
  %k.next = add i64 %k, 1
  br label %next
done:
  %result = call ptr @PyLong_FromLongLong(i64 %n)
  ret ptr %result
fail:
  ret ptr null
}
"""

_FASTCALL = 0x80  # METH_FASTCALL


class _Method(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_methods: list[_Method] = []  # to which functions point


def builtin(name: str, address: int) -> Callable[..., int]:
    """The native function at an address as one of Python's; it takes what it was written for."""
    method = _Method(name.encode(), address, _FASTCALL, None)
    _methods.append(method)
    make: Any = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.POINTER(_Method), ctypes.c_void_p, ctypes.c_void_p)
    made: Callable[..., int] = make(method, None, None)
    return made
