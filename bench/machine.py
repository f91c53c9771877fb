"""What a record says of where it was made: the machine, the versions of all sides, the commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from luminal.backends.cpu.host import CPUINFO
from luminal.backends.cpu.target import current
from luminal.base.host import core_ids, memory
from luminal.base.installation import VERSION

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "llvmlite", "numpy", "torch", "jax", "jaxlib", "onnxruntime", "onnx", "transformers",
    "llama-cpp-python",
)  # fmt: skip
CPU = Path("/sys/devices/system/cpu")
CLOCKS = {
    "governor": "cpu0/cpufreq/scaling_governor",
    "driver": "cpu0/cpufreq/scaling_driver",
    "boost": "cpufreq/boost",
    "smt": "smt/control",
}
UNKNOWN = "not told"


def machine() -> dict[str, Any]:
    """The processor by its own name, what it can do, its clocks' governor, memory, system. No name
    of a host and no path is told.
    """
    target = current()
    return {
        "cpu": _model() or platform.processor() or platform.machine(),
        "llvm_cpu": target.cpu,
        "vector_bits": target.vector_bits,
        "features": list(target.features),
        "cores": len(core_ids()),
        "cache_bytes": [target.l1_bytes, target.l2_bytes, target.l3_bytes],
        "memory_bytes": memory()[0],
        "clocks": {name: _said(CPU / path) for name, path in CLOCKS.items()},
        "virtual": "hypervisor" in _field("flags").split(),
        "system": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    """Of Luminal, Python, the peers; and the library that NumPy multiplies with."""
    found = {"luminal": VERSION, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return found | {"numpy's BLAS": f"{blas['name']} {blas['version']}"}


def commit() -> dict[str, Any]:
    """The commit of this tree, its date, and whether files differ from it; unknown without git."""
    said = _git("log", "-1", "--format=%H %cI")
    if said is None:
        return {"commit": None, "date": None, "changed": None}
    number, date = said.split()
    return {
        "commit": number,
        "date": date,
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _model() -> str:
    return _field("model name")


def _field(name: str) -> str:
    """What the first processor's line of that name says."""
    try:
        lines = CPUINFO.read_text().split("\n\n")[0].splitlines()
    except OSError:
        return ""
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in pairs if key.strip() == name), "")


def _said(path: Path) -> str:
    """The word of a file of the system; virtual machines have few of them."""
    try:
        return path.read_text().strip() if os.access(path, os.R_OK) else UNKNOWN
    except OSError:
        return UNKNOWN
