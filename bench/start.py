"""The time `import luminal` takes in a new process."""

from __future__ import annotations

import subprocess
import sys

from bench.pair import REPEATS
from bench.row import Rows, duration

PROGRAM = """
import time
start = time.perf_counter()
import luminal
print(time.perf_counter() - start)
"""


def rows() -> Rows:
    """NumPy's import included."""
    command = [sys.executable, "-c", PROGRAM]
    times = [
        float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
        for _ in range(REPEATS)
    ]
    yield duration("import luminal", times, 0.5, "s")
