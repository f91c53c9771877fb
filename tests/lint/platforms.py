"""The lint of systems: modules use only what Linux, macOS and Windows all have.

`python -m tests.lint.platforms` has mypy check the package as on macOS and on Windows, prints what
is wrong there and ends with 1 if anything is; `make lint` runs it. What one system alone has is
asked for by `luminal.base.host`, or stands in a module of `ONLY_POSIX`, which is imported behind
`host.require_posix`, where users on Windows are told so.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = ("darwin", "win32")
ONLY_LINUX = ("src/luminal/base/host/linux.py", "bench/")
ONLY_POSIX = (
    "src/luminal/base/host/darwin.py",
    "src/luminal/base/host/posix.py",
    "src/luminal/backends/cpu/systems/posix.py",
    "src/luminal/backends/cpu/systems/darwin.py",
    "src/luminal/runtime/private_folder_posix.py",
    "src/luminal/runtime/collectives/drain.py",
    "src/luminal/runtime/collectives/elastic.py",
    "src/luminal/runtime/collectives/launcher.py",
    "src/luminal/runtime/collectives/start.py",
    "src/luminal/runtime/collectives/mpi/",
    "src/luminal/serve/workshop.py",
    "src/luminal/serve/workshop_process.py",
    "src/luminal/cli/serve.py",
    "src/luminal_rank.py",
)


def faults(system: str) -> list[str]:
    """What mypy says of the package on a system, but for modules that are not for it."""
    excused = ONLY_LINUX if system == "darwin" else (*ONLY_LINUX, *ONLY_POSIX)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--no-error-summary"),
            *("--platform", system, "--cache-dir", f".mypy_cache/{system}"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    if done.returncode not in (0, 1) or (done.returncode and not lines):
        return [done.stderr or done.stdout]
    return [line for line in lines if ": error: " in line and not line.startswith(excused)]


def main() -> int:
    """Prints what is wrong on each system."""
    count = 0
    for system in SYSTEMS:
        for line in faults(system):
            print(f"{system}: {line}")
            count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
