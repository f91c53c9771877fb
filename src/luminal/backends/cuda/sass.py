"""Machine code of NVIDIA's chips as text (SASS), by nvdisasm, which needs no device."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from luminal.backends.cuda import wheels
from luminal.base import installation
from luminal.base.errors import CompileError

TOOL, WHEEL = "nvdisasm", "nvidia-cuda-nvdisasm"
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]+)")


def tool() -> str | None:
    """The path of nvdisasm: the wheel's, else the one that the shell finds."""
    return next(iter(wheels.files(WHEEL, TOOL)), None) or shutil.which(TOOL)


def of(cubin: bytes) -> str:
    """The instructions of machine code, a line each. Raises CompileError without nvdisasm."""
    path = tool()
    if path is None:
        raise CompileError(f"{TOOL} is not installed; {installation.hint('cuda')}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        command = [path, "--print-code", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"{TOOL} refuses machine code: {done.stderr.strip()}")
    return done.stdout


def counts(text: str) -> Counter[str]:
    """How often each instruction stands in a text that `of` gave, by its name with modifiers."""
    return Counter(_INSTRUCTION.findall(text))
