"""What LLVM says of this machine, kept between processes: loading it takes 30 ms.

The answer follows from what the processor says of itself, as far as the system lets programs use
it: from lines of /proc/cpuinfo and, on AArch64, from the kernel's own words (`hwcaps`). Without
that file LLVM is asked each time.
"""

from __future__ import annotations

import functools
import json
import platform
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from luminal.backends.cpu import hwcaps
from luminal.base.errors import CompileError
from luminal.base.records import dataclass
from luminal.runtime import object_cache

CPUINFO = Path("/proc/cpuinfo")
FIELDS = ("vendor_id", "cpu family", "model", "stepping", "flags", "CPU implementer", "CPU part")
PACKAGE = "llvmlite"


@dataclass(frozen=True, slots=True)
class Host:
    """What LLVM says of this machine: features by name, True where present."""

    triple: str
    cpu: str
    features: dict[str, bool]


# A start that finds all its code needs of LLVM only a linker and these names; loading LLVM for them
# would be 0.03 s of 1.3.
@functools.cache
def host() -> Host:
    """The machine this process runs on, as LLVM names it."""
    version, processor = llvm_version(), _processor()
    if processor is None:
        return _asked()
    objects, key = object_cache.default(), object_cache.key("host 2", version, processor)
    kept = objects.get(key)
    if kept is not None:
        return Host(**json.loads(kept))
    answer = _asked()
    objects.put(key, json.dumps(asdict(answer)).encode())
    return answer


@functools.cache
def llvm_version() -> str:
    """The LLVM that makes the code: its package's own words and the size of the library, as reading
    the package's metadata takes longer than loading a program. CompileError where it is missing.
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise CompileError(
            "llvmlite is not installed (Macs with Intel's processors and Windows on ARM get no "
            "wheel of it); lm.device('auto') and backend='auto' take what is there"
        )
    folder = Path(spec.origin).parent
    # The size beside the version tells builds of one version apart, as those of two distributors
    # are.
    libraries = sorted(folder.glob("binding/*llvmlite*"))
    sizes = [(library.name, library.stat().st_size) for library in libraries]
    return f"{(folder / '_version.py').read_text()} {sizes}"


def _processor() -> str | None:
    """What the first processor says of itself: all are of one kind."""
    try:
        with CPUINFO.open() as file:
            # One processor's lines only: the file of a machine with many cores has megabytes, and
            # the kernel makes all that is read.
            lines = file.read(1 << 14).split("\n\n")[0].splitlines()
    except OSError:
        return None
    fields = [line for line in lines if line.split("\t")[0].strip() in FIELDS]
    return "\n".join([platform.machine(), *fields, *map(str, hwcaps.words())])


def _asked() -> Host:
    from luminal.backends.cpu import apple, machine_code

    triple, cpu, features = machine_code.host()
    if hwcaps.MACHINE in triple:
        # The kernel knows what it lets programs use, and an emulator what it can; LLVM reads a file
        # that may speak of another processor.
        features = hwcaps.features(*hwcaps.words())
    elif not features and apple.TRIPLE in triple:
        features = apple.features()
    return Host(triple, cpu, features)
