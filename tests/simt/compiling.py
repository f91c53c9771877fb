"""Kernels' texts (CUDA C++, HIP, MSL) as shared libraries that run on the CPU (`launching.py`).

The text itself is compiled: headers say what its dialect's words mean, and a few words that C++
has no place for are rewritten within their line, so that lines keep their numbers.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import platformdirs

from tests.simt.cuda_text import cuda_kernels, rewritten_cuda
from tests.simt.matrix_text import without_assembly
from tests.simt.metal_text import metal_kernels, rewritten_metal
from tests.simt.signature import Signature

HERE = Path(__file__).parent
RUNTIME_SOURCES = ("fibres.cpp", "shadow.cpp")
HEADERS = ("fibres.h", "runtime.h", "cuda_kernels.h", "metal_kernels.h")
RUNTIME_FLAGS = ("-O2", "-U_FORTIFY_SOURCE")
"""A fortified longjmp takes a jump to another stack for a mistake."""
INSTRUMENTED = ("-O1", "-fsanitize=thread", "-fsanitize=bounds")
"""Reports of every access; the runtime receives them, so no sanitizer's library is linked."""
PLAIN = ("-O2",)
"""Of what is run for its values alone."""
KERNEL_FLAGS = (
    "-g1",
    "-gdwarf-4",
    "-fno-var-tracking",  # only lines are asked for; to follow variables takes a fifth of the time
    "-w",
    "-fno-exceptions",
    "-ffp-contract=off",
    "-nodefaultlibs",
)


class TextError(Exception):
    """The C++ compiler's complaint about a kernel's text."""


@dataclass(frozen=True)
class Compiled:
    """A shared library made from a text, and the kernels in it by name."""

    library: Path
    dialect: str
    kernels: Mapping[str, Signature]


INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b.*$", re.MULTILINE)


LANGUAGES = {
    "cuda": ("cuda_kernels.h", cuda_kernels, rewritten_cuda),
    "hip": ("cuda_kernels.h", cuda_kernels, rewritten_cuda),
    "metal": ("metal_kernels.h", metal_kernels, rewritten_metal),
}


@cache
def compiler() -> str | None:
    """The machine's C++ compiler, or None."""
    return shutil.which("g++") or shutil.which("clang++")


def write_library(target: Path, *arguments: str | Path, text: str | None = None) -> None:
    """Runs the C++ compiler on sources (and `text`, as its input) into `target`, which appears
    whole or not at all. Raises TextError with what the compiler says."""
    program = compiler()
    assert program is not None, "no C++ compiler: tests that build skip where there is none"
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    command = [program, "-std=c++17", "-fPIC", "-shared", *map(str, arguments), "-o", str(partial)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TextError(done.stderr.strip())
    partial.replace(target)


def cached(name: str, *contents: str) -> Path:
    """Where what is built from these contents is kept."""
    key = hashlib.sha256("\0".join((str(compiler()), *contents)).encode()).hexdigest()[:24]
    return platformdirs.user_cache_path("luminal-tests") / "simt" / f"{name}-{key}.so"


def sources(names: Sequence[str]) -> list[str]:
    """The texts of files of this folder."""
    return [(HERE / name).read_text() for name in names]


@cache
def runtime_library() -> Path:
    """The fibre runtime, built once."""
    library = cached("runtime", *RUNTIME_FLAGS, *sources(HEADERS[:2] + RUNTIME_SOURCES))
    if not library.exists():
        write_library(library, *RUNTIME_FLAGS, *(HERE / name for name in RUNTIME_SOURCES))
    return library


def linked(library: Path) -> tuple[str, ...]:
    """What makes the next library find this one, where it stands."""
    return (f"-L{library.parent}", f"-l:{library.name}", f"-Wl,-rpath,{library.parent}")


def compile(text: str, dialect: str, *, checked: bool = True) -> Compiled:
    """A module from the text of one or several kernels; `dialect` is cuda, hip or metal.

    Kept by text. What is not `checked` runs some ten times as fast and gives the same values: its
    accesses are not looked at, its barriers and counters are. Raises TextError with the
    compiler's words where the text is none of the dialect.
    """
    header, kernels_of, rewritten = LANGUAGES[dialect]
    signatures = kernels_of(text)
    body, matrices = without_assembly(rewritten(INCLUDE.sub("", text)))
    wrappers = "\n".join(signature.wrapper for signature in signatures)
    source = f'#include "{header}"\n{matrices}\n'
    source += f'#line 1 "kernel"\n{body}\n#line 1 "wrapper"\n'
    source += f"SIMT_MODULE({int(checked)})\n{wrappers}\n"
    runtime = runtime_library()
    flags = (*KERNEL_FLAGS, *(INSTRUMENTED if checked else PLAIN))
    library = cached("kernel", source, str(runtime), *flags, *sources(("fibres.h", header)))
    if not library.exists():
        where = ("-I", HERE, "-x", "c++", "-", *linked(runtime))
        write_library(library, *flags, *where, "-lgcc", "-lm", "-lc", text=source)
    return Compiled(library, dialect, {each.name: each for each in signatures})
