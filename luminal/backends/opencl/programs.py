"""Texts of kernels to programs of one device: binaries from the object cache, else built."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import pyopencl as cl

from luminal import tracing
from luminal.backends.opencl.facts import Facts
from luminal.codegen.c_family.dialect import KERNEL
from luminal.errors import CompileError
from luminal.runtime import object_cache


def load(context: Any, device: Any, facts: Facts, text: str) -> Any:
    """The kernel of a text, as pyopencl has it. Raises CompileError with the compiler's words."""
    objects = object_cache.default()
    key = object_cache.key(text, "opencl", facts.name, facts.version, *facts.options)
    binary = objects.get(key)
    if binary is not None:
        with tracing.span("load"), suppress(cl.Error):  # a driver may refuse what it once made
            return _kernel(cl.Program(context, [device], [binary]), facts)
    with tracing.span("compile"):
        # A bare program: of a text pyopencl would ask its own cache.
        program = cl.Program(cl._cl._Program(context, text))
        try:
            kernel = _kernel(program, facts)
        except cl.Error as error:
            raise CompileError(
                f"OpenCL: {facts.name} ({facts.version}) refuses a kernel, which is a bug in "
                f"Luminal or in that driver:\n{error}\n{text}"
            ) from None
    (made,) = program.get_info(cl.program_info.BINARIES)
    objects.put(key, made)
    return kernel


def _kernel(program: Any, facts: Facts) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)  # remarks of compilers that succeed
        program.build(list(facts.options))
    return cl.Kernel(program, KERNEL)
