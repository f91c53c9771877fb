"""Kernels of every kind on oclgrind, which simulates an OpenCL device and sees every access: no two
lanes or groups race, nothing is touched outside of an operand, nothing is used that none has set.

It runs each program (simulated.py) in a process of its own, whose OpenCL it replaces.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from luminal.program.steps import CallStep, KernelStep

pytest.importorskip("pyopencl")
OCLGRIND = shutil.which("oclgrind")
if OCLGRIND is None:
    pytest.skip("oclgrind is not installed (Debian: oclgrind)", allow_module_level=True)

from tests.backends.opencl.simulated import PROGRAMS  # noqa: E402

ROOT = Path(__file__).parents[3]
# Unoptimised: oclgrind 21.10 knows no `freeze`, and an access that is not needed shows too.
CHECKS = ("--data-races", "--uninitialized", "--build-options", "-cl-opt-disable")
FINDINGS = {
    "race": "data race at local memory",
    "bounds": "Invalid read of size 4 at global memory",
    "unset": "depends on uninitialized value",
}


def found(folder: Path, name: str, *options: str) -> tuple[str, list[str]]:
    """What oclgrind reports of a program, and the kinds of its kernels."""
    log = folder / "log"
    child = [sys.executable, "-m", "tests.backends.opencl.simulated", name, *options]
    done = subprocess.run(
        [str(OCLGRIND), *CHECKS, "--log", str(log), *child],
        cwd=ROOT, env=os.environ | {"LUMINAL_CACHE_DIR": str(folder / "cache")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return log.read_text(), done.stdout.splitlines()


def check(folder: Path, name: str, lanes: str) -> None:
    report, kinds = found(folder, name, lanes)
    assert report == "", f"{name} by groups of {lanes}:\n{report}"
    assert PROGRAMS[name].kind in kinds


def test_a_sample(tmp_path: Path) -> None:
    check(tmp_path, "normed", "8")


@pytest.mark.parametrize("planted", FINDINGS)
def test_what_is_planted_is_found(planted: str, tmp_path: Path) -> None:
    report, _ = found(tmp_path, "normed", "8", planted)
    assert FINDINGS[planted] in report


def test_there_are_programs_of_every_kind() -> None:
    kinds = {each.__name__ for each in get_args(KernelStep) if each is not CallStep}
    assert kinds == {program.kind.split()[0] for program in PROGRAMS.values()}


@pytest.mark.long
@pytest.mark.parametrize("lanes", ["8", "128"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_kernel_races_or_leaves_its_operands(name: str, lanes: str, tmp_path: Path) -> None:
    check(tmp_path, name, lanes)
