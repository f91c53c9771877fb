"""Hand-written LLVM IR as a kernel: the author's module, and the kernel ABI around its function.

The function is `void @NAME(ptr ..., i64 ..., i64 chunk, i64 chunks)`: a pointer for each operand
and result, the extents of their dimensions in the same order, then which chunk of the work this
call is to do.
"""

from __future__ import annotations

from luminal.kernel.tile_ir import Call


def signature(call: Call) -> str:
    """The type that the author's function must have, as LLVM prints it."""
    pointers = len(call.operands) + len(call.results)
    return f"void ({', '.join(['ptr'] * pointers + ['i64'] * (len(call.extents) + 2))})"


def render(call: Call) -> str:
    """The module: the author's text first, so that LLVM's messages count its lines."""
    if call.kernel.ir is None:
        return f"; {call.kernel.name}: a Python function, run by the thread that runs the program\n"
    pointers = [f"b{k}" for k in range(len(call.operands) + len(call.results))]
    numbers = [f"p{k}" for k in range(len(call.extents) + 1)]  # the last one: how many chunks
    loads: list[str] = []
    for k, name in enumerate(pointers):
        loads += [
            f"  %{name}.at = getelementptr ptr, ptr %slots, i64 {k}",
            f"  %{name} = load ptr, ptr %{name}.at",
        ]
    for k, name in enumerate(numbers):
        loads += [
            f"  %{name}.at = getelementptr i64, ptr %dims, i64 {k}",
            f"  %{name} = load i64, ptr %{name}.at",
        ]
    extents = [f"i64 %{name}" for name in numbers[:-1]]
    last = ["i64 %chunk", f"i64 %{numbers[-1]}"]
    arguments = ", ".join([*(f"ptr %{name}" for name in pointers), *extents, *last])
    wrapper = _WRAPPER.replace("$LOADS", "\n".join(loads)).replace("$ARGUMENTS", arguments)
    return call.kernel.ir.rstrip("\n") + wrapper.replace("$NAME", call.kernel.name)


_WRAPPER = """

define void @kernel(ptr %slots, ptr %dims, i64 %begin, i64 %end, ptr %scratch) nounwind {
entry:
$LOADS
  br label %head
head:
  %chunk = phi i64 [ %begin, %entry ], [ %next, %body ]
  %more = icmp slt i64 %chunk, %end
  br i1 %more, label %body, label %exit
body:
  call void @$NAME($ARGUMENTS)
  %next = add i64 %chunk, 1
  br label %head
exit:
  ret void
}
"""
