"""CUDA C++ to machine code by NVRTC, which needs no device."""

from __future__ import annotations

import ctypes
import re
from typing import Any, NamedTuple

from luminal.backends.cuda import wheels
from luminal.base import installation
from luminal.base.errors import CompileError

WHEEL = "nvidia-cuda-nvrtc"
OPTIONS = ("--std=c++17", "--fmad=false", "--ptxas-options=-v", "--no-cache")
"""A product and a sum are contracted where the text says so, and nowhere else. NVRTC's own cache
gives code without the assembler's report."""


class Cubin(NamedTuple):
    """Machine code of one architecture, with what a thread of its kernel takes.

    `registers` are of 32 bits; `stack` and `spilled` (stores and loads) are bytes.
    """

    code: bytes
    registers: int
    stack: int
    spilled: int


_REGISTERS = re.compile(r"Used (\d+) registers")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def version() -> tuple[int, int]:
    """The version of the NVRTC that is installed. Raises CompileError where none is."""
    _, major, minor = _bindings().nvrtcVersion()
    return major, minor


def _bindings() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError:
        raise _absence() from None
    try:
        nvrtc.nvrtcVersion()  # looks for the library
    except RuntimeError:
        # It looks beside the interpreter. A wheel may lie elsewhere on Python's path, and what is
        # loaded is found.
        for library in wheels.files(WHEEL, "libnvrtc"):
            ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
        try:
            nvrtc.nvrtcVersion()
        except RuntimeError:
            raise _absence() from None
    return nvrtc


def _absence() -> CompileError:
    return CompileError(f"NVRTC is not installed; {installation.hint('cuda')}")


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status:
        raise CompileError(f"NVRTC: {status.name}")
    return values[0] if values else None


def compile(text: str, architecture: str) -> Cubin:
    """One kernel's code for an architecture such as "sm_90a".

    A name with a final "a" has all that the chip can do, and what it lacks is refused. Raises
    CompileError with NVRTC's words, and where NVRTC is not installed.
    """
    nvrtc = _bindings()
    program = _checked(nvrtc.nvrtcCreateProgram(text.encode(), b"kernel", 0, [], []))
    try:
        options = [option.encode() for option in (f"--gpu-architecture={architecture}", *OPTIONS)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
        _checked(nvrtc.nvrtcGetProgramLog(program, log))
        words = log.rstrip(b"\0").decode()
        if status:
            raise CompileError(f"NVRTC refuses a kernel for {architecture}:\n{words}\n{text}")
        code = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, code))
    finally:
        _checked(nvrtc.nvrtcDestroyProgram(program))
    return _measured(bytes(code), words)


def _measured(code: bytes, words: str) -> Cubin:
    """The code with the figures of the assembler's report. Raises CompileError where it has
    none.
    """
    registers, stacks = _REGISTERS.findall(words), _STACK.findall(words)
    if not registers or not stacks:
        raise CompileError(f"NVRTC reports no registers:\n{words}")
    frames = [tuple(map(int, figures)) for figures in stacks]
    return Cubin(
        code,
        max(map(int, registers)),
        max(stack for stack, _, _ in frames),
        sum(stores + loads for _, stores, loads in frames),
    )
