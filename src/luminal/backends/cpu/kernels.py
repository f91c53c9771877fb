"""Kernels to code in this process: from here, else from the object cache, else rendered."""

from __future__ import annotations

from weakref import WeakValueDictionary

from luminal.backends.cpu import ahead, compiler, hand_written, libraries
from luminal.backends.cpu.beside import Key
from luminal.backends.cpu.linker import LoadedCode
from luminal.base import config, tracing
from luminal.codegen.llvm_product import symbols
from luminal.codegen.llvm_target import LlvmTarget
from luminal.kernel.tile_ir import Kernel
from luminal.runtime import object_cache

RENDERER = "luminal.codegen.llvm"
"""What makes IR of a kernel; other code there, or in what it imports, makes other IR."""

_built: WeakValueDictionary[tuple[str, LlvmTarget], LoadedCode] = WeakValueDictionary()


def build(kernel: Kernel, text: str, target: LlvmTarget) -> LoadedCode:
    """The kernel's code; `text` is its canonical text, which names it in every cache.

    Raises CompileError where the kernel cannot be rendered or compiled.
    """
    if config.get("LUMINAL_DEBUG") >= 4:
        _show(kernel, text, target)
    code = _built.get((text, target))
    if code is None:
        foreign = libraries.addresses(symbols(kernel.call.kernel)) if kernel.call else {}
        object_bytes = compiled(kernel, text, target)
        with tracing.span("load"):
            code = _built[text, target] = compiler.load(object_bytes, foreign=foreign)
    return code


def begin(kernel: Kernel, text: str, target: LlvmTarget) -> None:
    """Lets a kernel be compiled while others are placed, for `compiled` to find it."""
    if kernel.call is None and (text, target) not in _built:
        ahead.ahead.begin((text, target), kernel, _is_cached)


def _is_cached(key: Key) -> bool:
    return object_cache.default().get(compiler.cache_key(*key, RENDERER)) is not None


def _show(kernel: Kernel, text: str, target: LlvmTarget) -> None:
    from luminal.backends.cpu import machine_code  # late: code is mostly there already
    from luminal.codegen.llvm import render

    tracing.debug(4, text)
    if config.get("LUMINAL_DEBUG") >= 5:
        ir_text = render(kernel, target)
        tracing.debug(5, ir_text)
        if config.get("LUMINAL_DEBUG") >= 6:
            tracing.debug(6, machine_code.assembly(ir_text, target))


def compiled(kernel: Kernel, text: str, target: LlvmTarget) -> bytes:
    """The kernel's object code, from the cache or compiled into it. Raises as `build` does."""
    objects, key = object_cache.default(), compiler.cache_key(text, target, RENDERER)
    # Taken before the cache is asked: a kernel that was begun is not in it yet, and must be fetched
    # in any case.
    begun = ahead.ahead.take((text, target))
    code = objects.get(key)
    if code is None:
        code = object_code(kernel, target) if begun is None else begun
        objects.put(key, code)
    return code


def object_code(kernel: Kernel, target: LlvmTarget) -> bytes:
    """The kernel rendered and compiled. Raises as `build` does."""
    from luminal.backends.cpu import machine_code
    from luminal.codegen.llvm import render

    if kernel.call is not None:
        # Only what is compiled now is checked: what the cache has was checked when it was made.
        hand_written.check_ir(kernel.call)
    with tracing.span("render"):
        ir_text = render(kernel, target)
    with tracing.span("compile"):
        return machine_code.compile_object(ir_text, target)
