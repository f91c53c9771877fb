"""The backends by name. A backend is one row; its code is imported when it is first used."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

from luminal.backends.backend import Backend, Interpreter
from luminal.base import config
from luminal.base.errors import CompileError, InputError
from luminal.base.records import dataclass
from luminal.memory import dlpack_device
from luminal.memory.arrays import MemorySpace


# Rows name modules by text: `import luminal` then needs neither LLVM nor any device's library, and
# a device that is absent can say why.
@dataclass(frozen=True, slots=True)
class Row:
    """One backend. `module` has `current(number)`, which gives it for one of its devices as this
    machine has it, and `count()`, how many there are; both may raise CompileError or ImportError.
    Where it knows chips, one of which is the `example`, `named(chip)` gives it for one that need
    not be here. `library` is a module, with a `NAME`, for what moves values between its devices,
    and `products` one for what multiplies matrices on them: `version()` is the library's own, and
    raises CompileError where it is not there.
    """

    name: str
    summary: str
    module: str
    example: str = ""
    library: str = ""
    products: str = ""

    @property
    def knows_chips(self) -> bool:
        """Whether programs can be compiled for a chip that is not here."""
        return bool(self.example)

    def current(self, number: int = 0) -> Backend | Interpreter:
        """The backend for a device; its value changes with the flags it goes by."""
        backend: Backend | Interpreter = import_module(self.module).current(number)
        return backend

    def named(self, chip: str) -> Backend:
        """The backend for a chip by its name. Raises CompileError for an unknown one."""
        backend: Backend = import_module(self.module).named(chip)
        return backend

    def count(self) -> int:
        """The number of the backend's devices."""
        number: int = import_module(self.module).count()
        return number

    def libraries(self) -> tuple[str, ...]:
        """The name and the version of each library for its devices, or that there is none."""
        modules = (import_module(name) for name in (self.library, self.products) if name)
        return tuple(map(_named, modules))

    def check_library(self) -> None:
        """Raises CompileError where what moves values between devices is not there."""
        import_module(self.library).version()

    def unavailable(self) -> str | None:
        """Why it cannot be used here, if so, in one line."""
        try:
            self.current()
        except (CompileError, ImportError, InputError) as error:
            reason = str(error)
        # A library of the device's that is of another version, say, or that ends the process.
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}"
        else:
            return None
        return " ".join(reason.split())


def _named(library: Any) -> str:
    """What is installed of a library, in a few words."""
    try:
        return f"{library.NAME} {library.version()}"
    except CompileError:
        return f"no {library.NAME}"


BACKENDS = {
    row.name: row
    for row in (
        Row(
            "cpu",
            "native code through LLVM, run by a team of threads",
            "luminal.backends.cpu.backend",
        ),
        Row(
            "reference",
            "NumPy, slow: the meaning of every operation",
            "luminal.backends.reference.backend",
        ),
        Row(
            "cuda",
            "CUDA C++ through NVRTC, on NVIDIA's GPUs",
            "luminal.backends.cuda.backend",
            example="sm_90a",
            library="luminal.backends.cuda.nccl",
            products="luminal.backends.cuda.cublaslt",
        ),
        Row(
            "hip",
            "HIP through hiprtc, on AMD's GPUs",
            "luminal.backends.hip.backend",
            example="gfx942",
            library="luminal.backends.hip.rccl",
            products="luminal.backends.hip.hipblaslt",
        ),
        Row(
            "metal",
            "Metal through pyobjc, on Macs",
            "luminal.backends.metal.backend",
            example="apple9",
            products="luminal.backends.metal.shaders",
        ),
        Row(
            "opencl",
            "OpenCL C through pyopencl, on GPUs and CPUs",
            "luminal.backends.opencl.backend",
        ),
        Row(
            "interpreted",
            "tile IR on NumPy as if on a device, very slow: the meaning of every kernel",
            "luminal.backends.interpreted.backend",
        ),
    )
}


CUDA, ROCM = "cuda", "hip"
OF_DLPACK = {dlpack_device.CUDA: CUDA, dlpack_device.ROCM: ROCM}
"""The backends of devices by the numbers that other libraries have for their kinds."""
AUTOMATIC = ("cuda", "hip", "metal", "cpu", "opencl", "reference")
"""What "auto" looks for, in this order. A device of OpenCL may be the CPU once more, so it comes
after it.
"""


def find(name: str) -> Backend | Interpreter:
    """The backend of a name: "cpu", "opencl:1" (its second device), "cuda:sm_90a" (a chip that need
    not be here: programs are compiled, and do not run), or "auto": a GPU if there is one, else the
    CPU.

    Raises CompileError for an unknown name and for what cannot be used here.
    """
    if name == "auto":
        return _automatic()
    base, _, text = str(name).partition(":")
    row = BACKENDS.get(base)
    if row is not None and row.knows_chips and not text.isdecimal() and base != name:
        try:
            return row.named(text)
        except CompileError as error:
            raise CompileError(f"backend {name!r}: {error}") from None
    if row is None or not (text.isdecimal() or base == name):
        names = ", ".join(map(repr, BACKENDS))
        raise CompileError(f"backend {name!r}: takes {names} or 'auto'; a number is as in 'cpu:0'")
    reason = row.unavailable()
    if reason is not None:
        raise CompileError(f"backend {name!r} is not usable: {reason}{_without(row)}")
    number, count = int(text or 0), row.count()
    if number >= count:
        raise CompileError(f"backend {name!r}: there {_are(count)} here, from '{base}:0'")
    return row.current(number)


def _automatic() -> Backend | Interpreter:
    """The first backend of AUTOMATIC that can be used; a warning where it is not even the CPU.

    Raises InputError for a flag that breaks its rule: another backend would hide it.
    """
    config.cache_key()
    reasons = {}
    for name in AUTOMATIC:
        reason = BACKENDS[name].unavailable()
        if reason is None:
            break
        reasons[name] = reason
    if "cpu" in reasons:
        warnings.warn(
            f"backend 'auto': the CPU backend is not usable: {reasons['cpu']}; "
            f"{name!r} is used, which is slower",
            RuntimeWarning,
            stacklevel=3,
        )
    return BACKENDS[name].current()


def of_rank(name: str, local_rank: int) -> str:
    """The device that a rank has of those that a name without a number leaves open: ranks of a node
    take turns with its devices.
    """
    row = BACKENDS.get(name)
    if row is None or not row.library or row.unavailable() is not None:
        return name
    return f"{name}:{local_rank % row.count()}"


def adds(name: str) -> str:
    """Who adds what the ranks of a device have, unless a compile says so: its "engine", which adds
    as it moves, or kernels of our own, as a "tree".
    """
    row = BACKENDS.get(name.partition(":")[0])
    return "engine" if row is not None and row.library else "tree"


def compiling(name: str) -> Backend:
    """The backend of a name as `find` gives it, for what needs Programs. Raises CompileError for a
    backend that makes none.
    """
    backend = find(name)
    if isinstance(backend, Interpreter):
        raise CompileError(f"backend {backend.name!r} runs the graph itself; it makes no programs")
    return backend


def _without(row: Row) -> str:
    """What can be done without the device."""
    if not row.knows_chips:
        return ""
    return f"; '{row.name}:{row.example}' compiles for a chip that need not be here"


def _are(count: int) -> str:
    return "is 1 device" if count == 1 else f"are {count} devices"


def usable(what: str, device: Any) -> Backend | Interpreter:
    """The backend of a device that a user names for `what`. Raises InputError if there is none."""
    try:
        return find(str(device))
    except CompileError as error:
        raise InputError(f"{what}: device {str(device)!r}: {error}; see lm.devices()") from None


def space(device: Any) -> MemorySpace[Any]:
    """The memory of a device by its name. Raises InputError for one that cannot be used, and
    DeviceError for a chip that is not here.
    """
    return usable("to", device).memory


MemorySpace.by_name, MemorySpace.names = staticmethod(space), tuple(BACKENDS)
