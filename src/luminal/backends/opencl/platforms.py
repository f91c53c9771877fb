"""The devices of OpenCL, as pyopencl finds them.

Implementations are listed by files in a folder of vendors. The wheel of Intel's implementation for
CPUs (extra `opencl-cpu`) cannot write one there, and finds no library beside itself: its libraries
are loaded here, and for the time of the look-up a folder lists it together with the system's.
"""

from __future__ import annotations

import ctypes
import functools
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from luminal.base import config, installation
from luminal.base.errors import CompileError

SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
WHEEL = "intel-opencl-rt"
LIBRARY = "libintelocl.so"
NEEDED = ("libintlc.so.5", "libimf.so", "libirng.so", "libsvml.so", "libtbb.so.12")
"""Of the wheels `intel-cmplr-lib-rt` and `tbb`, each after those that it needs itself."""
INTEL = "Intel(R) OpenCL"


@functools.cache
def devices() -> tuple[Any, ...]:
    """pyopencl's devices: of every platform in its order, GPUs before CPUs.

    Raises CompileError with the reason where there is none.
    """
    library = _wheel_library()
    try:
        with tempfile.TemporaryDirectory() as folder:
            if library is None:
                present = _found()
            else:
                _list_vendors(Path(folder), library)
                with config.environment(OCL_ICD_VENDORS=folder):
                    present = _found()
    except ImportError:
        raise CompileError(
            f"pyopencl is not installed; {installation.hint('opencl')} (opencl-cpu brings an "
            "implementation for CPUs too)"
        ) from None
    if not present:
        raise CompileError(
            "pyopencl finds no OpenCL device; install the driver of one, or an implementation for "
            f"CPUs: {installation.hint('opencl-cpu')}"
        )
    return present


def is_built_apart(device: Any) -> bool:
    """Is the compiler of a device of pyopencl not to be trusted with this process's memory?"""
    return device.platform.name == INTEL and not is_gpu(device)


def is_gpu(device: Any) -> bool:
    """Does a device of pyopencl run rows of lanes in step?"""
    import pyopencl as cl

    return bool(device.type & cl.device_type.GPU)


def can_exchange(device: Any) -> bool:
    """Can lanes of a device of pyopencl exchange values, in rows of which a kernel says how
    long?
    """
    needed = {"cl_khr_subgroup_shuffle", "cl_intel_required_subgroup_size"}
    return needed <= set(device.extensions.split())


@contextmanager
def ignored_signals_kept() -> Iterator[None]:
    """Has processes that are started inside the block go on ignoring what this process ignores, as
    SIGHUP under nohup, a context made inside the block or not: Intel's library then catches
    signals, to say where it crashed.
    """
    ignored = [
        number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN
    ]
    try:
        yield
    finally:
        for number in ignored:  # in C: in Python only the main thread may
            ctypes.CDLL(None).signal(number, ctypes.c_void_p(int(signal.SIG_IGN)))


def _found() -> tuple[Any, ...]:
    import pyopencl as cl

    try:
        platforms = cl.get_platforms()
    except cl.Error:  # the loader's way to say that there is none
        return ()
    listed = [device for platform in platforms for device in platform.get_devices()]
    return tuple(sorted(listed, key=lambda device: not device.type & cl.device_type.GPU))


def _wheel_library() -> Path | None:
    """Intel's implementation from its wheel, with all that it needs loaded."""
    try:
        files = metadata.distribution(WHEEL).files or []
    except metadata.PackageNotFoundError:
        return None
    library = next((file for file in files if file.name == LIBRARY), None)
    if library is None:
        return None
    path = Path(str(library.locate())).resolve()
    try:
        for name in NEEDED:
            ctypes.CDLL(str(path.with_name(name)), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None
    return path


def _list_vendors(folder: Path, library: Path) -> None:
    """Fills a folder of vendors with the system's and this library."""
    for vendor in SYSTEM_VENDORS.glob("*.icd"):
        (folder / vendor.name).write_bytes(vendor.read_bytes())
    (folder / "wheel.icd").write_text(str(library))
