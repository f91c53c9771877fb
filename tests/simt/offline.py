"""HIP and Metal texts through clang, without their devices: AMD's machine code, Metal's types."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.simt.compiling import HERE, INCLUDE, TextError
from tests.simt.metal_text import rewritten_metal

HIP = ("-x", "hip", "--offload-device-only", "--no-gpu-bundle-output", "-nogpulib", "-nogpuinc")
RESOURCES = ("-Rpass-analysis=kernel-resource-usage", "-fno-color-diagnostics")
METAL_PARAMETER = re.compile(r"[(,]\s*(?!\s|device|constant|threadgroup|thread\b)[\w:<>]+\s*[*&]")


class Resources(NamedTuple):
    """What a HIP kernel takes of an architecture: vector registers a lane, spilled ones, bytes of
    memory a lane."""

    registers: int
    spilled: int
    stack: int


@cache
def clang() -> tuple[str, ...] | None:
    """How to start a clang that knows AMD's devices: Debian's, else that of the wheel ziglang."""
    for version in (22, 21, 20, 19):
        program = shutil.which(f"clang-{version}")
        if program is not None:
            return (program,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "clang")
    return None


def _run(*arguments: str | Path, text: str) -> tuple[str, str]:
    """What clang writes and remarks on a text. Raises TextError with what it complains of."""
    program = clang()
    assert program is not None, "no clang: tests that need one skip where there is none"
    command = [*program, *map(str, arguments), "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TextError(done.stderr.strip())
    return done.stdout, done.stderr


def _hip(text: str, architecture: str, *flags: str) -> tuple[str, str]:
    """What clang writes and remarks on a HIP text."""
    source = f'#include "hip_device.h"\n#line 1 "kernel"\n{INCLUDE.sub("", text)}'
    own = (f"--offload-arch={architecture}", "-std=c++17", "-O3", "-ffp-contract=off", "-I", HERE)
    return _run(*HIP, *own, *flags, text=source)


def hip_resources(text: str, architecture: str) -> Resources:
    """Compiles a HIP text for an architecture such as "gfx942", and assembles it.

    Raises TextError with the words of either.
    """
    _, remarks = _hip(
        text, architecture, "-S", "-Xclang", "-emit-obj", "-o", os.devnull, *RESOURCES
    )

    def most(name: str) -> int:
        return max(int(n) for n in re.findall(rf"remark:\s+{name}: (\d+)", remarks))

    return Resources(most("VGPRs"), most("VGPRs Spill"), most(r"ScratchSize \[bytes/lane\]"))


def hip_instructions(text: str, architecture: str) -> Counter[str]:
    """How often each instruction stands in the machine code of a HIP text."""
    code, _ = _hip(text, architecture, "-S", "-o", "-")
    return Counter(re.findall(r"^\t([a-z]\w+)", code, re.MULTILINE))


def check_metal(text: str) -> None:
    """Types and address spaces of a Metal text. Raises TextError with clang's words, or for a
    parameter that is a pointer into no space, which clang takes for one into the thread's own."""
    bare = METAL_PARAMETER.search("".join(re.findall(r"kernel\s+void\s+\w+\s*\([^{]*", text)))
    if bare:
        raise TextError(f"a parameter without an address space: {bare[0][1:].strip()}")
    body = rewritten_metal(INCLUDE.sub("", text))
    source = f'#include "metal_spaces.h"\n#line 1 "kernel"\n{body}'
    _run("-x", "c++", "-std=c++17", "-fsyntax-only", "-w", "-I", HERE, text=source)
