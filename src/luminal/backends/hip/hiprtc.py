"""HIP to machine code by hiprtc, which comes with ROCm."""

from __future__ import annotations

from typing import Any

from luminal.base.errors import CompileError

OPTIONS = ("--std=c++17", "-O3", "-ffp-contract=off")
"""Quotients and roots are rounded correctly and denormals kept where no option says otherwise."""


def _bindings() -> Any:
    from hip import hiprtc

    return hiprtc


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status != _bindings().hiprtcResult.HIPRTC_SUCCESS:
        raise CompileError(f"hiprtc: {status.name}")
    return values[0] if values else None


def version() -> tuple[int, int]:
    """The version of the hiprtc that is installed."""
    _, major, minor = _bindings().hiprtcVersion()
    return major, minor


def compile(text: str, architecture: str) -> bytes:
    """One kernel's code object for an architecture such as "gfx942".

    Raises CompileError with the compiler's words.
    """
    hiprtc = _bindings()
    program = _checked(hiprtc.hiprtcCreateProgram(text.encode(), b"kernel", 0, None, None))
    options = [option.encode() for option in (f"--offload-arch={architecture}", *OPTIONS)]
    (status,) = hiprtc.hiprtcCompileProgram(program, len(options), options)
    if status != hiprtc.hiprtcResult.HIPRTC_SUCCESS:
        log = bytearray(_checked(hiprtc.hiprtcGetProgramLogSize(program)))
        _checked(hiprtc.hiprtcGetProgramLog(program, log))
        words = log.rstrip(b"\0").decode()
        raise CompileError(f"hiprtc refuses a kernel for {architecture}:\n{words}\n{text}")
    code = bytearray(_checked(hiprtc.hiprtcGetCodeSize(program)))
    _checked(hiprtc.hiprtcGetCode(program, code))
    return bytes(code)
