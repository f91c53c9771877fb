"""Texts of kernels to programs of one device: binaries from the object cache, else built."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyopencl as cl

from luminal.backends.opencl.builder import Builder, Refused
from luminal.backends.opencl.facts import Facts
from luminal.base import tracing
from luminal.base.errors import CompileError
from luminal.codegen.c_family.dialect import KERNEL
from luminal.runtime import object_cache


def load(context: Any, device: Any, facts: Facts, text: str, apart: Builder | None = None) -> Any:
    """The kernel of a text, as pyopencl has it; built `apart` where that is given. Raises
    CompileError with the compiler's words.
    """
    objects = object_cache.default()
    key = object_cache.key(text, "opencl", facts.name, facts.version, *facts.options)
    program = objects.get(key)
    if program is not None:
        with tracing.span("load"), suppress(cl.Error):  # a driver may refuse what it once made
            return _kernel(context, device, facts, program)
    with tracing.span("compile"):
        try:
            if apart is None:
                program = binary(context, text, facts.options)
            else:
                program = apart.binary(text, facts.options)
            kernel = _kernel(context, device, facts, program)
        except (cl.Error, Refused) as error:
            raise CompileError(
                f"OpenCL: {facts.name} ({facts.version}) refuses a kernel, which is a bug in "
                f"Luminal or in that driver:\n{error}\n{text}"
            ) from None
    objects.put(key, program)
    return kernel


def binary(context: Any, text: str, options: Sequence[str]) -> bytes:
    """A text built for the one device of a context. Raises pyopencl.Error."""
    # A bare program: of a text pyopencl would ask its own cache.
    program = _built(cl.Program(cl._cl._Program(context, text)), options)
    (program_bytes,) = program.get_info(cl.program_info.BINARIES)
    return bytes(program_bytes)


def _kernel(context: Any, device: Any, facts: Facts, program: bytes) -> Any:
    return cl.Kernel(_built(cl.Program(context, [device], [program]), facts.options), KERNEL)


def _built(program: Any, options: Sequence[str]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)  # remarks of compilers that succeed
        program.build([*options])
    return program
