"""What a call's arrays are, looked up where they lie: LLVM IR of functions that Python calls.

A call that is as the last one was needs to know no more than that: of each array the class, the
dtype, the shape, and how it lies. In Python that takes longer than a small run. Where an array is
another one, or an index out of range, these functions only say that it is not so: what it means,
and what error it is, Python finds out. Fields of NumPy's arrays are part of its ABI.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.base.dtypes import int32, int64
from luminal.runtime.recognition import Familiar

ALIKE, AGAIN, APART = "luminal_alike", "luminal_again", "luminal_apart"

C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400  # in the flags of an array

ROW = np.dtype(
    [
        ("name", "u8"),  # of Python objects: the address
        ("class", "u8"),
        ("dtype", "u8"),
        ("rank", "i8"),
        ("shape", "u8"),  # address of the extents
        ("flags", "i8"),
        ("bytes", "i8"),
        ("indexes", "i8"),  # the extent that all elements are indices of, or 0
        ("size", "i8"),  # bytes of an element
    ]
)
"""What one array of a call has to be."""

CHECKED = (int32, int64)
"""Dtypes whose elements are compared with an extent here; one that an i32 holds."""


# Of a call that is as the last one was, everything has been checked before but the memory and the
# indices. So native code says yes or no only, and after a no Python checks all anew and raises:
# there is one place that knows what is wrong with a call.
class ArrayRows:
    """Rows in memory, and all that they point to. At `calls` lies a Calls: where they are, and the
    run record that takes such arrays, or 0.
    """

    def __init__(self, familiar: Sequence[Familiar], flags: int, record: int = 0) -> None:
        self._shapes = [np.array(kind.shape, np.int64) for kind in familiar]
        self._held = familiar
        rows = [
            (
                id(kind.name),
                id(np.ndarray),
                id(kind.dtype.numpy),
                len(kind.shape),
                shape.ctypes.data,
                flags,
                shape.prod() * kind.dtype.size,
                kind.indexes,
                kind.dtype.size,
            )
            for kind, shape in zip(familiar, self._shapes, strict=True)
        ]
        self._rows: NDArray[Any] = np.array(rows, ROW)
        self.where = (self._rows.ctypes.data, len(rows))
        self._calls = np.array([*self.where, record], np.uint64)
        self.calls: int = self._calls.ctypes.data


_WITHIN = """
; Whether all elements x of an array lie in -extent <= x < extent: then neither x + extent nor
; extent - 1 - x is negative. Where one of these leaves the type, x is out of range as well or the
; answer is no, and Python looks again.
define internal i1 @within.$T(ptr %data, i64 %n, $T %extent) {
entry:
  %last = sub $T %extent, 1
  %one = insertelement <$W x $T> poison, $T %extent, i32 0
  %extents = shufflevector <$W x $T> %one, <$W x $T> poison, <$W x i32> zeroinitializer
  %lasts = sub <$W x $T> %extents, splat ($T 1)
  %whole = and i64 %n, -$W
  br label %next
next:
  %k = phi i64 [0, %entry], [%k.next, %take]
  %found = phi <$W x $T> [zeroinitializer, %entry], [%found.next, %take]
  %more = icmp ult i64 %k, %whole
  br i1 %more, label %take, label %rest
take:
  %at = getelementptr $T, ptr %data, i64 %k
  %x = load <$W x $T>, ptr %at, align 4
  %up = add <$W x $T> %x, %extents
  %down = sub <$W x $T> %lasts, %x
  %either = or <$W x $T> %up, %down
  %found.next = or <$W x $T> %found, %either
  %k.next = add i64 %k, $W
  br label %next
rest:
  %all = call $T @llvm.vector.reduce.or.v$W$T(<$W x $T> %found)
  br label %rest.next
rest.next:
  %r = phi i64 [%k, %rest], [%r.next, %rest.take]
  %seen = phi $T [%all, %rest], [%seen.next, %rest.take]
  %rest.more = icmp ult i64 %r, %n
  br i1 %rest.more, label %rest.take, label %done
rest.take:
  %r.at = getelementptr $T, ptr %data, i64 %r
  %r.x = load $T, ptr %r.at, align 4
  %r.up = add $T %r.x, %extent
  %r.down = sub $T %last, %r.x
  %r.either = or $T %r.up, %r.down
  %seen.next = or $T %seen, %r.either
  %r.next = add i64 %r, 1
  br label %rest.next
done:
  %within = icmp sge $T %seen, 0
  ret i1 %within
}
declare $T @llvm.vector.reduce.or.v$W$T(<$W x $T>)
"""

_ALIKE = """
%Row = type { ptr, ptr, ptr, i64, ptr, i64, i64, i64, i64 }
%Calls = type { ptr, i64, ptr }
%Array = type { ptr, i32, ptr, ptr, ptr, ptr, i32 }

declare i64 @PyLong_AsSsize_t(ptr)
declare ptr @PyErr_Occurred()
declare i64 @PyDict_Size(ptr)
declare ptr @PyDict_GetItem(ptr, ptr)
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare void @Py_IncRef(ptr)

; Whether an object is an array as a row says.
define internal i1 @is_familiar(ptr %row, ptr %object) {
entry:
  %class.at = getelementptr i8, ptr %object, i64 $CLASS_AT
  %class = load ptr, ptr %class.at
  %class.row.at = getelementptr %Row, ptr %row, i64 0, i32 1
  %class.row = load ptr, ptr %class.row.at
  %is.array = icmp eq ptr %class, %class.row
  br i1 %is.array, label %look, label %no
look:
  %array = getelementptr i8, ptr %object, i64 $OBJECT_BYTES
  %rank.at = getelementptr %Array, ptr %array, i64 0, i32 1
  %shape.at = getelementptr %Array, ptr %array, i64 0, i32 2
  %dtype.at = getelementptr %Array, ptr %array, i64 0, i32 5
  %flags.at = getelementptr %Array, ptr %array, i64 0, i32 6
  %dtype.row.at = getelementptr %Row, ptr %row, i64 0, i32 2
  %rank.row.at = getelementptr %Row, ptr %row, i64 0, i32 3
  %shape.row.at = getelementptr %Row, ptr %row, i64 0, i32 4
  %flags.row.at = getelementptr %Row, ptr %row, i64 0, i32 5
  %rank.narrow = load i32, ptr %rank.at
  %rank = sext i32 %rank.narrow to i64
  %shape = load ptr, ptr %shape.at
  %dtype = load ptr, ptr %dtype.at
  %flags.narrow = load i32, ptr %flags.at
  %flags.all = sext i32 %flags.narrow to i64
  %dtype.row = load ptr, ptr %dtype.row.at
  %rank.row = load i64, ptr %rank.row.at
  %shape.row = load ptr, ptr %shape.row.at
  %flags.row = load i64, ptr %flags.row.at
  %flags = and i64 %flags.all, %flags.row
  %same.dtype = icmp eq ptr %dtype, %dtype.row
  %same.rank = icmp eq i64 %rank, %rank.row
  %same.flags = icmp eq i64 %flags, %flags.row
  %same.both = and i1 %same.dtype, %same.rank
  %same = and i1 %same.both, %same.flags
  br i1 %same, label %axes, label %no
axes:
  %k = phi i64 [0, %look], [%k.next, %axis]
  %more = icmp slt i64 %k, %rank
  br i1 %more, label %axis, label %yes
axis:
  %k.next = add i64 %k, 1
  %extent.at = getelementptr i64, ptr %shape, i64 %k
  %extent.row.at = getelementptr i64, ptr %shape.row, i64 %k
  %extent = load i64, ptr %extent.at
  %extent.row = load i64, ptr %extent.row.at
  %same.extent = icmp eq i64 %extent, %extent.row
  br i1 %same.extent, label %axes, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether all elements of an array are indices of the row's extent, where it has one.
define internal i1 @is_within(ptr %row, ptr %object) {
entry:
  %extent.at = getelementptr %Row, ptr %row, i64 0, i32 7
  %extent = load i64, ptr %extent.at
  %any = icmp ne i64 %extent, 0
  br i1 %any, label %check, label %yes
check:
  %array = getelementptr i8, ptr %object, i64 $OBJECT_BYTES
  %data = load ptr, ptr %array
  %bytes.at = getelementptr %Row, ptr %row, i64 0, i32 6
  %size.at = getelementptr %Row, ptr %row, i64 0, i32 8
  %bytes = load i64, ptr %bytes.at
  %size = load i64, ptr %size.at
  %n = udiv i64 %bytes, %size
  %is.wide = icmp eq i64 %size, 8
  br i1 %is.wide, label %wide, label %narrow
wide:
  %within.wide = call i1 @within.i64(ptr %data, i64 %n, i64 %extent)
  ret i1 %within.wide
narrow:
  %extent.narrow = trunc i64 %extent to i32
  %within.narrow = call i1 @within.i32(ptr %data, i64 %n, i32 %extent.narrow)
  ret i1 %within.narrow
yes:
  ret i1 true
}

; The arrays of a dict in the order of a Calls' rows, as a list, where they are all that it has and
; each is as its row says; else null.
define internal ptr @alike(ptr %calls, ptr %arrays) {
entry:
  %n.at = getelementptr %Calls, ptr %calls, i64 0, i32 1
  %rows = load ptr, ptr %calls
  %n = load i64, ptr %n.at
  %given = call i64 @PyDict_Size(ptr %arrays)
  %whole = icmp eq i64 %given, %n
  br i1 %whole, label %make, label %no
make:
  %list = call ptr @PyList_New(i64 %n)
  %lacks = icmp eq ptr %list, null
  br i1 %lacks, label %no, label %next
next:
  %k = phi i64 [0, %make], [%k.next, %keep]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %take, label %done
take:
  %row = getelementptr %Row, ptr %rows, i64 %k
  %name = load ptr, ptr %row
  %array = call ptr @PyDict_GetItem(ptr %arrays, ptr %name)
  %is.there = icmp ne ptr %array, null
  br i1 %is.there, label %look, label %drop
look:
  %familiar = call i1 @is_familiar(ptr %row, ptr %array)
  br i1 %familiar, label %check, label %drop
check:
  %within = call i1 @is_within(ptr %row, ptr %array)
  br i1 %within, label %keep, label %drop
keep:
  call void @Py_IncRef(ptr %array)
  %kept = call i32 @PyList_SetItem(ptr %list, i64 %k, ptr %array)
  %k.next = add i64 %k, 1
  br label %next
drop:
  call void @Py_DecRef(ptr %list)
  br label %no
no:
  ret ptr null
done:
  ret ptr %list
}

; What Python gets where there is no list: False, or the error that there was no memory for one.
define internal ptr @refusal() {
entry:
  %error = call ptr @PyErr_Occurred()
  %fails = icmp ne ptr %error, null
  br i1 %fails, label %fail, label %refuse
refuse:
  %false = call ptr @PyBool_FromLong(i64 0)
  ret ptr %false
fail:
  ret ptr null
}

; `alike(arrays)` of a Calls: the list of a dict's arrays, else False.
define ptr @luminal_alike(ptr %number, ptr %args, i64 %count) {
entry:
  %calls = call ptr @PyLong_AsVoidPtr(ptr %number)
  %arrays = load ptr, ptr %args
  %list = call ptr @alike(ptr %calls, ptr %arrays)
  %none = icmp eq ptr %list, null
  br i1 %none, label %refuse, label %done
refuse:
  %refusal = call ptr @refusal()
  ret ptr %refusal
done:
  ret ptr %list
}

; `again(arrays, outputs)` of a Calls: the same, after a run that takes them and writes the outputs.
define ptr @luminal_again(ptr %number, ptr %args, i64 %count) {
entry:
  %calls = call ptr @PyLong_AsVoidPtr(ptr %number)
  %outputs.at = getelementptr ptr, ptr %args, i64 1
  %arrays = load ptr, ptr %args
  %outputs = load ptr, ptr %outputs.at
  %run.at = getelementptr %Calls, ptr %calls, i64 0, i32 2
  %run = load ptr, ptr %run.at
  %list = call ptr @alike(ptr %calls, ptr %arrays)
  %none = icmp eq ptr %list, null
  br i1 %none, label %refuse, label %set
refuse:
  %refusal = call ptr @refusal()
  ret ptr %refusal
set:
  %pointed = call i1 @point(ptr %run, ptr %list, ptr %outputs)
  br i1 %pointed, label %go, label %fail
go:
  %size = call i64 @enter(ptr %run)
  ret ptr %list
fail:
  call void @Py_DecRef(ptr %list)
  ret ptr null
}

; Where the memory of a list's array begins and ends.
define internal { i64, i64 } @span(ptr %rows, ptr %list, i64 %k) {
entry:
  %object = call ptr @PyList_GetItem(ptr %list, i64 %k)
  %array = getelementptr i8, ptr %object, i64 $OBJECT_BYTES
  %begin = load i64, ptr %array
  %bytes.at = getelementptr %Row, ptr %rows, i64 %k, i32 6
  %bytes = load i64, ptr %bytes.at
  %end = add i64 %begin, %bytes
  %half = insertvalue { i64, i64 } poison, i64 %begin, 0
  %whole = insertvalue { i64, i64 } %half, i64 %end, 1
  ret { i64, i64 } %whole
}

; Whether memory is apart from that of the first n arrays of a list.
define internal i1 @is_apart({ i64, i64 } %own, ptr %rows, ptr %list, i64 %n) {
entry:
  %begin = extractvalue { i64, i64 } %own, 0
  %end = extractvalue { i64, i64 } %own, 1
  br label %next
next:
  %k = phi i64 [0, %entry], [%k.next, %look]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %look, label %done
look:
  %k.next = add i64 %k, 1
  %other = call { i64, i64 } @span(ptr %rows, ptr %list, i64 %k)
  %other.begin = extractvalue { i64, i64 } %other, 0
  %other.end = extractvalue { i64, i64 } %other, 1
  %before = icmp ule i64 %end, %other.begin
  %behind = icmp uge i64 %begin, %other.end
  %apart = or i1 %before, %behind
  br i1 %apart, label %next, label %done
done:
  %all = phi i1 [true, %next], [false, %look]
  ret i1 %all
}

; `apart(rows, n, arrays, rows', n', arrays')`: whether the first arrays share memory neither with
; each other nor with the second ones. Both are lists that `alike` has given.
define ptr @luminal_apart(ptr %none, ptr %args, i64 %count) {
entry:
  %n.at = getelementptr ptr, ptr %args, i64 1
  %list.at = getelementptr ptr, ptr %args, i64 2
  %rows.other.at = getelementptr ptr, ptr %args, i64 3
  %n.other.at = getelementptr ptr, ptr %args, i64 4
  %list.other.at = getelementptr ptr, ptr %args, i64 5
  %rows.number = load ptr, ptr %args
  %n.number = load ptr, ptr %n.at
  %list = load ptr, ptr %list.at
  %rows.other.number = load ptr, ptr %rows.other.at
  %n.other.number = load ptr, ptr %n.other.at
  %list.other = load ptr, ptr %list.other.at
  %rows = call ptr @PyLong_AsVoidPtr(ptr %rows.number)
  %n = call i64 @PyLong_AsSsize_t(ptr %n.number)
  %rows.other = call ptr @PyLong_AsVoidPtr(ptr %rows.other.number)
  %n.other = call i64 @PyLong_AsSsize_t(ptr %n.other.number)
  br label %next
next:
  %k = phi i64 [0, %entry], [%k.next, %look]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %look, label %done
look:
  %k.next = add i64 %k, 1
  %own = call { i64, i64 } @span(ptr %rows, ptr %list, i64 %k)
  %apart.before = call i1 @is_apart({ i64, i64 } %own, ptr %rows, ptr %list, i64 %k)
  %apart.other = call i1 @is_apart({ i64, i64 } %own, ptr %rows.other, ptr %list.other,
                                   i64 %n.other)
  %apart = and i1 %apart.before, %apart.other
  br i1 %apart, label %next, label %done
done:
  %all = phi i1 [true, %next], [false, %look]
  %wide = zext i1 %all to i64
  %result = call ptr @PyBool_FromLong(i64 %wide)
  ret ptr %result
}
"""

_WIDE, _NARROW = (
    Template(_WITHIN).safe_substitute(T=type_, W=lanes)
    for type_, lanes in (("i64", 8), ("i32", 16))
)
ARRAYS_IR = _WIDE + _NARROW + _ALIKE
