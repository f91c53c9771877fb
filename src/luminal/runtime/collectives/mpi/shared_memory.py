"""MPICH's shared memory: a file that it removes at its end, and leaves where a rank is killed."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_MAPPED = re.compile(r"(/dev/shm/mpich_shm_\w+)$", re.MULTILINE)


def let_go() -> None:
    """Removes the names of what this process has mapped, once all ranks of its node have: memory
    without a name goes with the last process that has it, however that ends.
    """
    with suppress(OSError):  # no /proc: not Linux
        for name in set(_MAPPED.findall(Path("/proc/self/maps").read_text())):
            Path(name).unlink(missing_ok=True)
