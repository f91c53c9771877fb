"""Where the files of the `mpich` wheel lie, and which mpiexec starts ranks."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def wheel_file(name: str) -> Path | None:
    """A file of the installed wheel by its name; None where there is no wheel, or no such file."""
    from importlib import metadata  # late: takes longer than most of what is imported at a start

    try:
        files = metadata.files("mpich") or []
    except metadata.PackageNotFoundError:
        return None
    paths = (Path(str(path.locate())).resolve() for path in files if path.name == name)
    return next((path for path in paths if path.is_file()), None)


def mpiexec() -> Path | None:
    """The launcher of this environment: beside its interpreter, in the wheel, or on the PATH."""
    beside = Path(sys.executable).parent / "mpiexec"
    if beside.is_file():
        return beside
    if (packed := wheel_file("mpiexec")) is not None:
        return packed
    on_path = shutil.which("mpiexec")
    return None if on_path is None else Path(on_path)
