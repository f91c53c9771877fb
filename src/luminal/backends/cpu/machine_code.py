"""LLVM IR text to object code.

The one place that compiles through llvmlite. The IR comes explicit (vectors, fma, tiles), so
only SROA runs on it, and only where there is an alloca; code generation is at level 3, but for the
strength reduction of loops.

This module and what it imports are a part of every cached object's key: what does not change
code stands in `compiler.py`.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from luminal.base import forks
from luminal.base.errors import CompileError
from luminal.codegen.llvm_builder import IN_ORDER
from luminal.codegen.llvm_target import LlvmTarget

OPT_LEVEL = 3
ELF = "-elf"

lock = threading.RLock()
"""Held around every use of LLVM, and by a fork: a child never inherits LLVM in mid-call."""


def _before_fork() -> None:
    lock.acquire()
    # llvmlite's own: objects that are given back call LLVM too, whenever and wherever that happens.
    ffi.lib._lock.__enter__()


def _after_fork() -> None:
    ffi.lib._lock.__exit__()
    lock.release()


forks.on_fork(_after_fork, before=_before_fork, after_in_parent=_after_fork)


def host() -> tuple[str, str, dict[str, bool]]:
    """The machine this process runs on as LLVM names it: triple, processor, features; no features
    where LLVM asks for none (Apple silicon).
    """
    with lock:
        try:
            features = dict(llvm.get_host_cpu_features())
        except RuntimeError:
            features = {}
        return elf_triple(llvm.get_process_triple()), llvm.get_host_cpu_name(), features


def elf_triple(triple: str) -> str:
    """The triple of the same system with object files in ELF, which our linker reads.

    Registers, stacks and calls stay the system's own, so code of such an object calls what Mach-O
    and COFF libraries have, by address.
    """
    return triple if "linux" in triple or triple.endswith(ELF) else triple + ELF


def compile_object(ir_text: str, target: LlvmTarget) -> bytes:
    """Object code of a module. Raises CompileError with the offending line of the IR."""
    with lock:
        module = _module(ir_text, target)
        with _as_written(ir_text):
            return bytes(_machine(target).emit_object(module))


def functions(ir_text: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """The functions that a module defines, by name with their types, and those that it only names.

    Raises CompileError as `compile_object`.
    """
    with lock:
        parsed = [*_parsed(ir_text).functions]
        defined = {f.name: str(f.global_value_type) for f in parsed if not f.is_declaration}
        return defined, tuple(f.name for f in parsed if f.name not in defined)


def assembly(ir_text: str, target: LlvmTarget) -> str:
    """The module's assembly text. Raises CompileError as `compile_object` does."""
    with lock:
        module = _module(ir_text, target)
        with _as_written(ir_text):
            return str(_machine(target).emit_assembly(module))


# Tried on 34 programs in turns: without strength reduction 0.78 to 1.02 of the time, and 0.78 to
# 0.93 of a whole compile. Scheduling from the top down spilled neither convolutions nor depthwise
# layers, and was not tried for all kernels.
@contextmanager
def _as_written(ir_text: str) -> Iterator[None]:
    """Keeps LLVM, inside the block, from its search for other ways to count and to address in
    loops, a quarter of its time: addresses are hoisted and share pointers as they come. Where the
    IR says so, also from scheduling machine instructions: in long bodies with more pointers than
    one that moves all loads to the start, and spills what they load.

    The process may use LLVM for more than this: settings of all of it hold for one call.
    """
    options = [("-disable-lsr", "-disable-lsr=0")]
    if IN_ORDER in ir_text:
        options.append(("-enable-misched=0", "-enable-misched"))
    for option, _ in options:
        llvm.set_option("", option)
    try:
        yield
    finally:
        for _, option in options:
            llvm.set_option("", option)


def _module(ir_text: str, target: LlvmTarget) -> Any:
    """The IR parsed, verified and freed of its allocas."""
    module = _parsed(ir_text)
    module.triple = target.triple
    module.data_layout = str(_machine(target).target_data)
    if " = alloca " in ir_text:
        _promote_allocas(module, target)
    return module


def _parsed(ir_text: str) -> Any:
    try:
        module = llvm.parse_assembly(ir_text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(_located(str(error), ir_text)) from None
    return module


def _promote_allocas(module: Any, target: LlvmTarget) -> None:
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    builder = _pass_builder(target)
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)


def _located(message: str, ir_text: str) -> str:
    """LLVM's message and the line of the IR it speaks of: by number, else by its text."""
    lines = ir_text.splitlines()
    position = re.search(r"<string>:(\d+):\d+", message)
    if position:
        number = int(position[1])
    else:  # the verifier quotes instructions in its own spacing, with defaults at their end
        quoted = tuple("".join(text.split()) for text in message.splitlines()[1:])
        compact = ("".join(line.split()) for line in lines)
        number = next(
            (
                i
                for i, line in enumerate(compact, 1)
                if line and any(q.startswith(line) for q in quoted)
            ),
            0,
        )
    line = f"\n  line {number}: {lines[number - 1].strip()}" if 1 <= number <= len(lines) else ""
    return f"LLVM refuses the IR: {message.strip()}{line}"


@functools.cache
def _generator(triple: str) -> Any:
    """LLVM's code generator for a triple: this machine's, or another's to read what it writes."""
    if triple == elf_triple(llvm.get_process_triple()):
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple)


def new_machine(triple: str, cpu: str, features: str) -> Any:
    # Position-independent small code: the linker may place an object anywhere, far from libm.
    return _generator(triple).create_target_machine(
        cpu=cpu, features=features, opt=OPT_LEVEL, reloc="pic", codemodel="small", jit=True
    )


@functools.cache
def _machine(target: LlvmTarget) -> Any:
    return new_machine(target.triple, target.cpu, target.llvm_features)


@functools.cache
def _pass_builder(target: LlvmTarget) -> Any:
    return llvm.create_pass_builder(_machine(target), llvm.create_pipeline_tuning_options(0))
