"""Products of matrices by a library: hand-written kernels that Luminal itself writes.

Each calls the library's gemm for one share of the result: of one matrix of the batch some rows, or
some columns where these are more.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.base.dtypes import DType, float32
from luminal.hlir.attributes import CustomKernel

GEMM = {True: "scipy_cblas_sgemm", False: "scipy_cblas_dgemm"}  # is it f32?
SYMBOLS = tuple(GEMM.values())


@functools.cache
def gemm(dtype: DType, turned: tuple[bool, bool]) -> CustomKernel:
    """The kernel for operands of a dtype; which of the two have their last dimensions turned."""
    is_f32 = dtype is float32
    name = "".join(["sgemm_" if is_f32 else "dgemm_", *("nt"[is_turned] for is_turned in turned)])
    text = _IR.replace("$GEMM", GEMM[is_f32]).replace("$T", "float" if is_f32 else "double")
    for key, value in _layout(turned).items():
        text = text.replace(key, value)
    bytes_ = str(dtype.size)
    text = text.replace("$NAME", name).replace("$SIZE", bytes_)
    return CustomKernel(name, functools.partial(_meaning, turned), text)


def symbols(kernel: CustomKernel) -> tuple[str, ...]:
    """The library's functions that a kernel calls."""
    return tuple(symbol for symbol in SYMBOLS if f"@{symbol}(" in (kernel.ir or ""))


def _meaning(
    turned: tuple[bool, bool], a: NDArray[Any], b: NDArray[Any], out: NDArray[Any]
) -> None:
    left, right = (x.swapaxes(1, 2) if t else x for x, t in zip((a, b), turned, strict=True))
    np.matmul(left, right, out=out)


def _layout(turned: tuple[bool, bool]) -> dict[str, str]:
    """What differs by the operands' layouts: CBLAS's flags, the row lengths, where k stands."""
    flags = ["112" if is_turned else "111" for is_turned in turned]
    return {
        "$FLAG_A": flags[0],
        "$FLAG_B": flags[1],
        "$K": "%a1" if turned[0] else "%a2",
        "$STEP_A": "1" if turned[0] else "%k",
        "$STEP_B": "%k" if turned[1] else "1",
        "$ROW_A": "%m" if turned[0] else "%k",
        "$ROW_B": "%k" if turned[1] else "%n",
    }


_IR = """\
declare void @$GEMM(i32, i32, i32, i32, i32, i32, $T, ptr, i32, ptr, i32, $T, ptr, i32)
declare i64 @llvm.umax.i64(i64, i64)

define void @$NAME(ptr %a, ptr %b, ptr %c, i64 %a0, i64 %a1, i64 %a2, i64 %b0, i64 %b1, i64 %b2,
                   i64 %batch, i64 %m, i64 %n, i64 %chunk, i64 %chunks) nounwind {
  %k = add i64 $K, 0
  %parts = udiv i64 %chunks, %batch
  %image = udiv i64 %chunk, %parts
  %part = urem i64 %chunk, %parts
  %next = add i64 %part, 1
  %long = call i64 @llvm.umax.i64(i64 %m, i64 %n)
  %begin.all = mul i64 %part, %long
  %begin = udiv i64 %begin.all, %parts
  %end.all = mul i64 %next, %long
  %end = udiv i64 %end.all, %parts
  %count = sub i64 %end, %begin
  %tall = icmp uge i64 %m, %n
  %row = select i1 %tall, i64 %begin, i64 0
  %column = select i1 %tall, i64 0, i64 %begin
  %rows = select i1 %tall, i64 %count, i64 %m
  %columns = select i1 %tall, i64 %n, i64 %count
  %a.size = mul i64 %m, %k
  %a.image = mul i64 %image, %a.size
  %a.part = mul i64 %row, $STEP_A
  %a.offset = add i64 %a.image, %a.part
  %a.at = getelementptr $T, ptr %a, i64 %a.offset
  %b.size = mul i64 %k, %n
  %b.image = mul i64 %image, %b.size
  %b.part = mul i64 %column, $STEP_B
  %b.offset = add i64 %b.image, %b.part
  %b.at = getelementptr $T, ptr %b, i64 %b.offset
  %c.size = mul i64 %m, %n
  %c.image = mul i64 %image, %c.size
  %c.row = mul i64 %row, %n
  %c.part = add i64 %c.row, %column
  %c.offset = add i64 %c.image, %c.part
  %c.at = getelementptr $T, ptr %c, i64 %c.offset
  %a.long = call i64 @llvm.umax.i64(i64 $ROW_A, i64 1)
  %b.long = call i64 @llvm.umax.i64(i64 $ROW_B, i64 1)
  %c.long = call i64 @llvm.umax.i64(i64 %n, i64 1)
  %m.i = trunc i64 %rows to i32
  %n.i = trunc i64 %columns to i32
  %k.i = trunc i64 %k to i32
  %lda = trunc i64 %a.long to i32
  %ldb = trunc i64 %b.long to i32
  %ldc = trunc i64 %c.long to i32
  call void @$GEMM(i32 101, i32 $FLAG_A, i32 $FLAG_B, i32 %m.i, i32 %n.i, i32 %k.i, $T 1.0,
                   ptr %a.at, i32 %lda, ptr %b.at, i32 %ldb, $T 0.0, ptr %c.at, i32 %ldc)
  ret void
}
"""
