"""The backends by name. A backend is one row; its code is imported when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from luminal.errors import CompileError, InputError
from luminal.hlir.graph import Graph
from luminal.hlir.memory import HOST, MemorySpace
from luminal.runtime.runner import Runner
from luminal.target import Target

if TYPE_CHECKING:  # the compiler's records are imported when something is compiled
    from luminal.kernel.tile_ir import Kernel
    from luminal.program.launch_list import Program
    from luminal.runtime.device import Device


@dataclass(frozen=True, slots=True)
class Backend:
    """One backend. One with a target runs Programs compiled for it, one without runs HLIR.

    `sources` are the texts a kernel becomes on its way to a binary, by name and in order. `build`
    compiles a kernel (with its text, its name in every cache) for later programs, loading nothing;
    `begin` lets that happen while others are placed. `makers` are the modules that make a kernel's
    code: with all that they import, other sources make other code. Where programs run in other
    memory than the host's, `device` gives the device of a number below `count`; its name is one
    that `find` takes.
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
    device: Callable[[int], Device] | None = None
    count: Callable[[], int] = lambda: 1


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


def _interpreted_device(number: int) -> Device:
    from luminal.backends.interpreted import device

    return device.device()


def _runner_on(device: Callable[[int], Device], number: int) -> Callable[[Any], Runner]:
    """A backend's `make_runner` for one of its devices."""

    def make_runner(program: Program) -> Runner:
        from luminal.runtime.device_runner import DeviceRunner

        return DeviceRunner(program, device(number))

    return make_runner


def _opencl_unavailable() -> str | None:
    from luminal.backends.opencl import platforms

    try:
        platforms.devices()
    except CompileError as error:
        return str(error)
    return None


def _opencl_target() -> Target:
    from luminal.backends.opencl import device

    return device.target()


def _opencl_runner(program: Program) -> Runner:
    from luminal.backends.opencl import device
    from luminal.runtime.device_runner import DeviceRunner

    return DeviceRunner(program, device.device())


def _opencl_build(kernel: Kernel, text: str, target: Target) -> object:
    from luminal.backends.opencl import device

    return device.device().compile(kernel, text)


def _opencl_c(kernel: Kernel, target: Target) -> str:
    from luminal.codegen.c_family.kernel import spell_tiles
    from luminal.codegen.c_family.opencl import OPENCL

    return spell_tiles(kernel, OPENCL).text


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
            "opencl",
            "OpenCL C through pyopencl, on GPUs and CPUs",
            _opencl_unavailable,
            _opencl_target,
            _opencl_runner,
            {"opencl": _opencl_c},
            _opencl_build,
            ("luminal.codegen.c_family.kernel", "luminal.codegen.c_family.opencl"),
        ),
        Backend(
            "interpreted",
            "tile IR on NumPy as if on a device, very slow: the meaning of every kernel",
            lambda: None,
            _interpreted_target,
            _runner_on(_interpreted_device, 0),
            build=lambda kernel, text, target: None,
            makers=("luminal.kernel.tile_interpreter",),
            device=_interpreted_device,
        ),
    )
}


def find(name: str) -> Backend:
    """The backend of a name: "cpu", "opencl:1" (its second device), or "auto", the first usable.

    Raises CompileError for an unknown name and for what cannot be used here.
    """
    if name == "auto":
        return next(b for b in BACKENDS.values() if b.unavailable() is None)
    base, _, text = name.partition(":")
    backend = BACKENDS.get(base)
    if backend is None or not (text.isdecimal() or base == name):
        known = ", ".join(map(repr, BACKENDS))
        raise CompileError(f"backend {name!r}: takes {known} or 'auto'; a number is as in 'cpu:0'")
    reason = backend.unavailable()
    if reason is not None:
        raise CompileError(f"backend {name!r} is not usable: {reason}")
    number, count = int(text or 0), backend.count()
    if number >= count:
        raise CompileError(f"backend {name!r}: there {_are(count)} here, from '{base}:0'")
    if backend.device is None or not number:
        return backend
    return replace(backend, name=name, make_runner=_runner_on(backend.device, number))


def _are(count: int) -> str:
    return "is 1 device" if count == 1 else f"are {count} devices"


def usable(what: str, device: Any) -> Backend:
    """The backend of a device that a user names for `what`. Raises InputError if there is none."""
    try:
        return find(str(device))
    except CompileError as error:
        raise InputError(f"{what}: device {str(device)!r}: {error}; see lm.devices()") from None


def space(device: Any) -> MemorySpace[Any]:
    """The memory of a device by its name. Raises InputError for one that cannot be used."""
    backend = usable("to", device)
    if backend.device is None:
        return HOST
    return backend.device(int(backend.name.partition(":")[2] or 0))


MemorySpace.by_name = staticmethod(space)
