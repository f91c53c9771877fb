"""Object code by its IR, compiled once, and object code into the process.

LLVM is imported where something is compiled: what is kept is loaded without it.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Mapping

from luminal.backends.cpu import host
from luminal.backends.cpu.linker import KERNEL, LoadedCode, link
from luminal.base import config, forks
from luminal.codegen.llvm_target import LlvmTarget
from luminal.runtime import object_cache
from luminal.runtime.source_hash import source_hash

NOTHING: Mapping[str, int] = {}
COMPILER = "luminal.backends.cpu.machine_code"
"""What makes code of IR; other code there, or in what it imports, makes other code."""

_loaded: weakref.WeakValueDictionary[str, LoadedCode] = weakref.WeakValueDictionary()
_lock = forks.rlock()


def build(ir_text: str, target: LlvmTarget, symbols: tuple[str, ...] = (KERNEL,)) -> LoadedCode:
    """The IR's functions loaded: from this process, else the object cache, else compiled.

    Raises CompileError where the IR is not valid.
    """
    key = cache_key(ir_text, target)
    # The same object with other entry points is other code to the caller, though one object to the
    # cache.
    name = f"{key} {symbols}"
    with _lock:
        code = _loaded.get(name)
        if code is None:
            code = _loaded[name] = load(object_code(ir_text, target), symbols)
        return code


def object_code(ir_text: str, target: LlvmTarget) -> bytes:
    """The object code of IR, from the object cache or compiled into it. Raises as `build` does."""
    objects, key = object_cache.default(), cache_key(ir_text, target)
    object_bytes = objects.get(key)
    if object_bytes is None:
        from luminal.backends.cpu import machine_code

        object_bytes = machine_code.compile_object(ir_text, target)
        objects.put(key, object_bytes)
    return object_bytes


def cache_key(text: str, target: LlvmTarget, *sources: str) -> str:
    """The object cache's key: everything that object code depends on.

    `sources`: the modules that make IR of the text, where it is not IR itself.
    """
    machine = (target.triple, target.cpu, target.llvm_features, target.vector_bits)
    # A hash of sources, not a version number: somebody who changes how code is made need not
    # remember to count it up.
    made_by = (source_hash(COMPILER, *sources), host.llvm_version(), config.cache_key())
    return object_cache.key(text, machine, *made_by)


def load(
    object_bytes: bytes,
    symbols: tuple[str, ...] = (KERNEL,),
    foreign: Mapping[str, int] = NOTHING,
) -> LoadedCode:
    """Object code linked into the process; identical objects are linked once.

    Undefined symbols have the addresses that `foreign` gives, or are looked for in the process
    (libc, libm). Raises CompileError where one is missing, or one of `symbols` is.
    """
    name = f"{hashlib.sha256(object_bytes).hexdigest()} {symbols}"
    with _lock:
        code = _loaded.get(name)
        if code is None:
            code = _loaded[name] = link(object_bytes, symbols, foreign)
        return code
