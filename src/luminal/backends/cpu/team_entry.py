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
declare ptr @PyBool_FromLong(i64)
declare ptr @PySequence_GetItem(ptr, i64)
declare i64 @PySequence_Size(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)

; Runs; other threads of Python go on meanwhile. How many threads ran it.
define internal i64 @enter(ptr %run) {
entry:
  %thread = call ptr @PyEval_SaveThread()
  %size = call i64 @luminal_run(ptr %run)
  call void @PyEval_RestoreThread(ptr %thread)
  ret i64 %size
}

; `enter(run)`: the same, for Python.
define ptr @luminal_enter(ptr %none, ptr %args, i64 %count) {
entry:
  %number = load ptr, ptr %args
  %run = call ptr @PyLong_AsVoidPtr(ptr %number)
  %size = call i64 @enter(ptr %run)
  %result = call ptr @PyLong_FromLongLong(i64 %size)
  ret ptr %result
}

; Writes where the data of arrays lie into the run's table, by its places, in which the outputs are
; numbered on from the inputs. Whether there are as many as it has places for.
define internal i1 @point(ptr %run, ptr %inputs, ptr %outputs) {
entry:
  %taken = call i64 @PySequence_Size(ptr %inputs)
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
  %is.given = icmp sge i64 %which, %taken
  %which.given = sub i64 %which, %taken
  %arrays = select i1 %is.given, ptr %outputs, ptr %inputs
  %place = select i1 %is.given, i64 %which.given, i64 %which
  %array = call ptr @PySequence_GetItem(ptr %arrays, i64 %place)
  %lacks = icmp eq ptr %array, null
  br i1 %lacks, label %done, label %write
write:
  %data.at = getelementptr i8, ptr %array, i64 $OBJECT_BYTES
  %data = load ptr, ptr %data.at
  call void @Py_DecRef(ptr %array)
  %slot.at = getelementptr ptr, ptr %table, i64 %slot
  store ptr %data, ptr %slot.at
  %k.next = add i64 %k, 1
  br label %next
done:
  %all = icmp eq i64 %k, %n
  ret i1 %all
}

; `point(run, inputs, outputs)`: the same, for Python, which gets the error where one lacks.
define ptr @luminal_point(ptr %none, ptr %args, i64 %count) {
entry:
  %inputs.at = getelementptr ptr, ptr %args, i64 1
  %outputs.at = getelementptr ptr, ptr %args, i64 2
  %number = load ptr, ptr %args
  %inputs = load ptr, ptr %inputs.at
  %outputs = load ptr, ptr %outputs.at
  %run = call ptr @PyLong_AsVoidPtr(ptr %number)
  %all = call i1 @point(ptr %run, ptr %inputs, ptr %outputs)
  br i1 %all, label %done, label %fail
done:
  %true = call ptr @PyBool_FromLong(i64 1)
  ret ptr %true
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


def builtin(name: str, address: int) -> Callable[[int], Callable[..., Any]]:
    """The native function at an address as methods of Python's: of the number that they are made
    for, which it takes before what it was written for.
    """
    # Python keeps the pointer and no reference, so the record has to live as long as the process.
    method = _Method(name.encode(), address, _FASTCALL, None)
    _methods.append(method)
    make: Any = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.POINTER(_Method), ctypes.py_object, ctypes.c_void_p)
    return lambda number: make(method, number, None)
