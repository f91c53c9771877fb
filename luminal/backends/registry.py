"""The backends by name. A backend is one row; its code is imported when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from luminal.errors import CompileError
from luminal.hlir.graph import Graph
from luminal.runtime.runner import Runner
from luminal.target import Target

if TYPE_CHECKING:  # the compiler's records are imported when something is compiled
    from luminal.kernel.tile_ir import Kernel
    from luminal.program.launch_list import Program


@dataclass(frozen=True, slots=True)
class Backend:
    """One backend. One with a target runs Programs compiled for it, one without runs HLIR.

    `sources` are the texts a kernel becomes on its way to a binary, by name and in order. `build`
    compiles a kernel (with its text, its name in every cache) for later programs, loading nothing;
    `begin` lets that happen while others are placed. `makers` are the modules that make a kernel's
    code: with all that they import, other sources make other code.
    """

    name: str
    summary: str
    unavailable: Callable[[], str | None]  # why it cannot be used here, or None
    target: Callable[[], Target] | None
    make_runner: Callable[[Any], Runner]
    sources: Mapping[str, Callable[[Kernel, Target], str]] = field(default_factory=dict)
    build: Callable[[Kernel, str, Target], object] | None = None
    makers: tuple[str, ...] = ()
    begin: Callable[[Target, Kernel, str], None] | None = None


def _cpu_unavailable() -> str | None:
    try:
        _cpu_target()
    except (CompileError, ImportError) as error:
        return str(error)
    return None


def _cpu_target() -> Target:
    from luminal.backends.cpu import target

    return target.current()


def _cpu_runner(program: Program) -> Runner:
    from luminal.backends.cpu import device

    return device.CpuRunner(program, _cpu_target())


def _cpu_build(kernel: Kernel, text: str, target: Target) -> object:
    from luminal.backends.cpu import kernels

    return kernels.compiled(kernel, text, target)


def _cpu_begin(target: Target, kernel: Kernel, text: str) -> None:
    from luminal.backends.cpu import kernels

    kernels.begin(kernel, text, target)


def _cpu_llvm(kernel: Kernel, target: Target) -> str:
    from luminal.codegen.llvm import render

    return render(kernel, target)


def _cpu_assembly(kernel: Kernel, target: Target) -> str:
    from luminal.backends.cpu import machine_code

    return machine_code.assembly(_cpu_llvm(kernel, target), target)


def _reference_runner(graph: Graph) -> Runner:
    from luminal.backends.reference.device import ReferenceRunner

    return ReferenceRunner(graph)


def _interpreted_target() -> Target:
    from luminal.backends.interpreted import device

    return device.TARGET


def _interpreted_runner(program: Program) -> Runner:
    from luminal.backends.interpreted import device

    return device.runner(program)


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend(
            "cpu",
            "native code through LLVM, run by a team of threads",
            _cpu_unavailable,
            _cpu_target,
            _cpu_runner,
            {"llvm": _cpu_llvm, "asm": _cpu_assembly},
            _cpu_build,
            ("luminal.codegen.llvm", "luminal.backends.cpu.machine_code"),
            _cpu_begin,
        ),
        Backend(
            "reference",
            "NumPy, slow: the meaning of every operation",
            lambda: None,
            None,
            _reference_runner,
        ),
        Backend(
            "interpreted",
            "tile IR on NumPy as if on a device, very slow: the meaning of every kernel",
            lambda: None,
            _interpreted_target,
            _interpreted_runner,
            build=lambda kernel, text, target: None,
            makers=("luminal.kernel.tile_interpreter",),
        ),
    )
}


def find(name: str) -> Backend:
    """The backend `name`, or the first usable one for "auto".

    Raises CompileError for an unknown name and for a backend that cannot be used here.
    """
    if name == "auto":
        return next(b for b in BACKENDS.values() if b.unavailable() is None)
    backend = BACKENDS.get(name)
    if backend is None:
        known = ", ".join(map(repr, BACKENDS))
        raise CompileError(f"backend {name!r}: takes {known} or 'auto'")
    reason = backend.unavailable()
    if reason is not None:
        raise CompileError(f"backend {name!r} is not usable: {reason}")
    return backend
